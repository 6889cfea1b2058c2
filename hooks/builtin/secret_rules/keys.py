"""Keys and tokens whose form shows the issuer, tokens that describe themselves, and private keys."""

import base64
import re

from hooks.api.extras import from_extra
from hooks.builtin.secret_rules.issuers import FAMILIES, WORDED, Family
from hooks.builtin.secret_rules.placeholders import is_placeholder
from hooks.builtin.secret_rules.randomness import entropy, looks_random
from hooks.builtin.secret_rules.signs import SIGN, any_of
from hooks.detect.rules import Rule

with from_extra("guards", "regex"):
    import regex

_PREFIX = re.compile(r"[^-_.:|%]{1,24}[-_.:|%]")
_BEFORE, _AFTER = r"(?<![A-Za-z\d])", r"(?![\w-])"
_AFTER_KEY = r"(?!_{0,2}[A-Za-z\d-]|_{3})"
"""The same, but underscores may be emphasis: `_key_`, `__key__`."""


def is_key(text: str) -> bool:
    """Whether `text` varies as keys do, and is no placeholder."""
    return entropy(text) >= 2.5 and not is_placeholder(text)


def is_drawn(text: str) -> bool:
    return is_key(text) and looks_random(text)


def is_unlike_words(text: str) -> bool:
    """Whether `text` is a key, and the part after its prefix looks random."""
    return is_key(text) and looks_random(_PREFIX.sub("", text, count=1))


def is_jwt(text: str) -> bool:
    """Whether the first part is the JSON object of a JOSE header (RFC 7519)."""
    header = text.partition(".")[0]
    try:
        read = base64.urlsafe_b64decode(header + "=" * (-len(header) % 4))
    except ValueError:
        return False
    return read.startswith(b"{") and b'"alg"' in read


_PART = r"\.[\w-]"
_SIGNED = rf"{_PART}{{4,8000}}+(?:{_PART}{{16,1000}}+)?+"
_ENCRYPTED = rf"{_PART}{{0,1000}}+{_PART}{{8,64}}+{_PART}{{1,8000}}+{_PART}{{16,100}}+"
JWT = Rule(
    "JWT",
    # RFC 7515, with two parts without a signature; RFC 7516.
    rf"(?a){_BEFORE}eyJ[\w-]{{10,1000}}+(?:{_ENCRYPTED}|{_SIGNED}){_AFTER}",
    check=is_jwt,
)

_has_all_kinds = re.compile(r"(?=.*\d)(?=.*[a-z]).*[A-Z]").match
"""One key in a thousand has no digit. A path of an address seldom has one."""
AWS_SECRET_KEY = Rule(
    "AWS_SECRET_KEY",
    r"(?<![A-Za-z\d/+])(?a:[A-Za-z\d/+]{40})(?![A-Za-z\d/+=])",
    near=r"aws|secret[ _]?access|akia|asia",
    check=lambda text: entropy(text) >= 4 and is_key(text) and _has_all_kinds(text) is not None,
)
AZURE_KEYS = (
    Rule(
        "AZURE_KEY",
        _BEFORE + r"(?a:[A-Za-z\d+/]{86})==(?!=)",
        near=r"azure|account[ _]?key|storage|cosmos|primary",
    ),
    Rule("AZURE_KEY", r"(?<=SharedAccessKey=)(?a:[A-Za-z\d+/]{43})=(?!=)"),
    Rule("AZURE_KEY", r"(?<=[?&]sig=)(?a:[A-Za-z\d%+/]{40,90})(?:%3[Dd]|=)(?![\w%])"),
    Rule("AZURE_KEY", r"(?a:(?<![\w~.-])[\w~.-]{3}\dQ~[\w~.-]{31,34}(?![\w~-]))", check=is_drawn),
)

_BREAK = r"""(?:[\\`][nrt]|[\s"'`>|#*+,;^/\\.%:()\[\]→│-]|</?[a-z]{1,6} ?/?>|(?<!\w)\d{1,5}(?!\w)){1,64}+"""
"""The text between two lines of a key: indents, quotes, numbers, comments, joined strings, JSON escapes."""
_BASE64 = r"[A-Za-z0-9/+=]"
_KIND = r"(?:(?:[A-Z0-9]{1,10} ){0,3}PRIVATE KEY(?: BLOCK)?|OpenVPN Static key V1)"
PRIVATE_KEY = Rule(
    "PRIVATE_KEY",
    # RFC 7468, and keys of SSH2 and OpenVPN. A key that has begun ends at its end line, after any other text.
    rf"----[ -]BEGIN {_KIND}[ -]----(?:{_BREAK}[A-Z][\w-]{{2,20}}: [^\n\\]{{0,80}}){{0,4}}+"
    rf"(?:{_BREAK}[A-Za-z/+=]{{16,80}}+(?!\d)){{0,3}}+(?:{_BREAK})?(?=[A-Za-z/+=]{{0,79}}\d){_BASE64}{{16}}",
    until=rf"----[ -]END {_KIND}[ -]----",
)
PUTTY_KEY = Rule(
    "PRIVATE_KEY",
    # PuTTY's own format (PPK). The public part comes before, and a hash after.
    rf"Private-Lines: \d{{1,3}}{_BREAK}{_BASE64}{{16}}",
    until=r"Private-(?:MAC|Hash)",
)


def _is_issued(text: str) -> bool:
    return any(map(str.isdigit, text)) and is_key(_FILLING.sub("", text))


_FILLING = re.compile("A{10,}")
_WORDS = "|".join(WORDED)
_NAMES = any_of(_WORDS.split("|"))
# The flag p takes the longest of all forms that match.
_FORMS = regex.compile(
    f"(?p)(?:{'|'.join(sorted({form for forms in WORDED.values() for form in forms}))})(?![\\w-])",
    regex.ASCII,
)


def _issued_length(text: str) -> int:
    """Return how many of the first characters of `text` have a form of an issuer; 0: none."""
    found = _FORMS.match(text)
    return found.end() if found is not None and _is_issued(found[0]) else 0


ISSUER_KEY = Rule(
    "ISSUER_KEY",
    r"(?a)(?<![\w-])[\w/+=:%-]{14,130}+",
    length=_issued_length,
    near=_WORDS,
    behind=rf"(?<![a-z]){_NAMES}[\w. \t'-]{{0,40}}{SIGN}",
)
"""Keys without a form of their own, after their issuer's name."""


_HEAD = re.compile(r"\[([A-Za-z\d]+)\]|\(\?:([\w|-]+)\)|\\([.$/])|([\w/-])")
_RARE = 4
"""Literal characters at the beginning of a pattern that make the automaton's work small."""


def _with_literal_heads(form: str) -> list[str]:
    """Return forms that together are `form`, each with literal characters at its beginning where it has few
    others there: for `gh[pousr]_` five forms."""
    heads, place = [""], 0
    while min(map(len, heads)) < _RARE and (found := _HEAD.match(form, place)):
        if form[found.end() : found.end() + 1] in tuple("{?*+"):
            break
        any_of, either, escaped, literal = found.groups()
        options = either.split("|") if either else any_of or escaped or literal
        heads = [head + option for head in heads for option in options]
        place = found.end()
    return [re.escape(head) + form[place:] for head in heads]


def _rules(family: Family) -> list[Rule]:
    return [_rule(family._replace(form=form)) for form in _with_literal_heads(family.form)]


def _rule(family: Family) -> Rule:
    check = is_unlike_words if family.check == "words" else is_key
    before = "" if family.behind else _BEFORE
    behind = f"{_BEFORE}{family.behind}" if family.behind else None
    return Rule(family.entity, f"(?a){before}{family.form}{_AFTER_KEY}", check=check, behind=behind)


KEYS = (
    *(rule for family in FAMILIES for rule in _rules(family)),
    AWS_SECRET_KEY,
    *AZURE_KEYS,
    JWT,
    PRIVATE_KEY,
    PUTTY_KEY,
    ISSUER_KEY,
)
