"""Texts that are where a secret belongs: placeholders of manuals, variables, masks, and expressions."""

import re

from hooks.builtin.secret_rules.randomness import looks_random

_STAND_INS = re.compile(
    r"""
    [*•.x_#?-]+                          # a mask
  | \$\{?[\w.:-]+\}?  | \$\{.*\} | \$\(.*           # a variable: $NAME, ${NAME}; a command
  | %\w | %\w+% | %\(\w+\)\w?            # a format
  | \\?\{.* | <.* | \[.* | @.*\(.*       # {name}, <name>, [name]
  | (?:pass(?:word|wd|phrase|code)?|pwd|pw|secret|token|credentials?|string|text|hidden|masked)s?\d?
  | foo|bar|baz|redacted
  | (?:undefined|none|null|nil|true|false|empty|blank|default|unset|required|optional|unknown|not[_-]?set)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_MARKED = re.compile(
    r"example|sample|dummy|placeholder|fake|redacted|change[_-]?(?:me|it|this)|replace[_-]?(?:me|with|this)"
    r"|(?<![a-z\d])(?:your?|my(?=[_-])|the|some|insert|enter|todo|here|goes|xxx+)(?![a-z\d])"
    r"|_here\b|x{4}|\.{3}|\*{3}|abc123"
)
"""Words of manuals, in lower case. One key of AWS in 40,000 that are drawn at random has one by chance."""
_ENVIRONMENT = re.compile(
    r"(?<=[_-])(?:live|test|sandbox|prod|production|development)(?=[_-])", re.IGNORECASE
)
_SEQUENCE = "01234567890123456789 abcdefghijklmnopqrstuvwxyz 9876543210 qwertyuiop"
_SAME_GROUPS = re.compile(r"(?<![A-Za-z\d])([A-Za-z\d]{3,12})([-_.])\1\2\1(?![A-Za-z\d])")
"""The same group three times: `1234-1234-1234`."""
_RUN = re.compile(r"(.)\1{6,}")
_LONG_SEQUENCE = 9
_SHARE = 4
"""A key is a placeholder if a run or a sequence is at least this part of it: a fourth."""
_MIN_REST = 18
"""A text with a word of manuals and this many characters that look random is not a placeholder."""


def is_stand_in(text: str) -> bool:
    """Whether `text` is a placeholder as a whole: `****`, `${PASSWORD}`, `<token>`, `password`."""
    return _STAND_INS.fullmatch(text) is not None


_PUBLISHED = {
    # Keys of Google's own programs, without "AIza": samples of Firebase for Android, YouTube's pages.
    *("SyAnLA7NfeLquW1tJFpx_eQCxoX-oo6YyIs", "SyCkEhVjf3pduRDt6d1yKOMitrUEke8agEM"),
    *("SyDMAScliyLx7F0NPDEJi1QmyCgHIAODrlU", "SyD3asb-2pEZVqMkmL6M9N6nHZRR_znhrh0"),
    *("yDNSXIbFmlXbIE6mCzDLQAqITYefhixbX4A", "SyAdOS2zB6NCsk1pCdZ4-P6GBdi_UUPwX7c"),
    *("SyASWm6HmTMdYWpgMnjRBjxcQ9CKctWmLd4", "SyANUvH9H9BsUccjsu2pCmEkOPjjaXeDQgY"),
    *("SyA5_iVawFQ8ABuTZNUdcwERLJv_a_p4wtM", "SyA4UrcGxgwQFTfaI3no3t7Lt1sjmdnP5sQ"),
    *("SyDSb51JiIcB6OJpwwMicseKRhhrOq1cS7g", "SyBF2RrAIm4a0mO64EShQfqfd2AFnzAvvuU"),
    *("SyBcE-OOIbhjyR83gm4r2MFCu4MJmprNXsw", "SyB8qGxt4ec15vitgn44duC5ucxaOi4FmqE"),
    *("SyA8vmApnrHNFE0bApF4hoZ11srVL_n0nvY", "SyAO_FJ2SlqU8Q4STEHLGCilw_Y9_11qcW8"),
}
"""Keys that their owner published, and everybody has. They are no secret."""


def is_placeholder(key: str) -> bool:
    """Whether a key that has an issuer's form is an example: `AKIA...EXAMPLE`, `ghp_xxxx...`, a sequence."""
    if key.removeprefix("AIza") in _PUBLISHED or _SAME_GROUPS.search(key):
        return True
    lower = key.lower()
    if _has_run(key) or _has_sequence(lower):
        return True
    if not _MARKED.search(lower):
        return False
    body = _ENVIRONMENT.sub("", key)
    found = _MARKED.search(body.lower())
    if found is None:
        return False
    rest = max((body[: found.start()], body[found.end() :]), key=len)
    is_at_the_end = found.end() > len(body) - 4
    return is_at_the_end or len(rest) < _MIN_REST or not looks_random(rest)


def _has_run(key: str) -> bool:
    if not _RUN.search(key):
        return False
    return any(len(run[0]) * _SHARE >= len(key) for run in _RUN.finditer(key))


def _has_sequence(text: str) -> bool:
    """Whether the text has a run of the alphabet, of digits in order, or of a keyboard."""
    size = max(_LONG_SEQUENCE, len(text) // _SHARE)
    return any(text[i : i + size] in _SEQUENCE for i in range(len(text) - size + 1))
