"""Keys after a name that ends in "key": `FOO_KEY=...`, `?key=...`, `The Foo key is ...`.

Many other things have such a name: `primary_key`, `cache_key`, `public_key`. So the value must be one that a
program drew at random: long, without words, a path, a date, a UUID or a digest with its name.
"""

import re

from hooks.builtin.secret_rules.passwords import password_length
from hooks.builtin.secret_rules.randomness import entropy
from hooks.builtin.secret_rules.signs import BEFORE, CLOSING, FEIGNED, OF_WHAT, OPENING, SAYS
from hooks.detect.rules import Rule

_NUMBER = r"(?:[ _-]?\d{1,3})?"
_OWNERS = (
    "app|application|client|consumer|customer|dev|developer|merchant|partner|project|server|subscription|team"
    "|user"
)
"""Words before "key", without a sign between, in names of secrets: appkey."""
_KEY = rf"(?:(?<![a-z])(?:{_OWNERS})?key|(?-i:(?<=[a-z\d])Key|(?<=[A-Z\d])KEY)){_NUMBER}"
"""The end of a name: foo_key, foo-key, foo key, fooKey, FOOKEY. Not of monkey."""
_SAID = rf"(?:{OF_WHAT}{CLOSING}{SAYS}{OPENING}|(?<=--[\w-]{{0,40}}|(?-i:[A-Z\d]_KEY)){CLOSING}[ \t][\"'`]?)"
_OTHERS = (
    "public|pub|publishable|primary|foreign|candidate|unique|composite|natural|surrogate|sort|partition|shard|range"
    "|row|hash|index|group|lookup|dict|entity|record|document|object|cache|storage|s3|blob|bucket|file|image|media"
    "|asset|idempotency|idempotent|dedup|dedupe|deduplication|request|trace|site|host|known|verify|verifying"
    "|verification|pinned|gpg|pgp|openpgp|ssh|rsa|websocket|accept|translation|message|i18n|etag|registry|chunk"
    "|commit|build|version|state"
)
"""Words before "key" in names of values that are no secrets."""
_NO_SECRET = (
    rf"(?:(?:{_OTHERS})[ _.-]?keys?{_NUMBER}{_SAID}|{FEIGNED}keys?{_NUMBER}{_SAID}"
    rf"|<[\w:.-]{{1,40}}[ ]{{1,4}}key=[\"'])"
)
"""Names of other values; and in XML, an attribute `key`, which has the name of a value."""
_VALUE = r"[A-Za-z\d_+/=.~-]"
_UUID = re.compile(r"[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}", re.IGNORECASE)
_OTHER = re.compile(
    r"(?:sha\d{1,3}|md5|blake\w{1,3})[-=_].*|[\dA-F]{16}|[\dA-F]{40}|\d{4}-\d\d.*|v?\d+\.\d+.*|AAAA[BCE].*|0x.*"
)
"""A digest with its name, the id of a key of OpenPGP, a date, a version, a public key of SSH, a number."""


def key_length(text: str) -> int:
    """Return how many of the first characters of `text` are a key that was drawn at random; 0: none."""
    value = text.rstrip(".~-")
    return len(value) if is_drawn_key(value) else 0


def is_drawn_key(value: str) -> bool:
    """Whether a program drew the value: 16 characters or more, with digits and letters, and no words."""
    num_digits = sum(map(str.isdecimal, value))
    num_letters = sum(map(str.isalpha, value))
    if len(value) < 16 or num_digits < 2 or num_letters < 3 or _UUID.search(value) or _OTHER.fullmatch(value):
        return False
    return entropy(value) >= 3 and password_length(value) == len(value)


NAMED_KEY = Rule(
    "PASSWORD",
    rf"{BEFORE}{_VALUE}{{16,512}}+(?![A-Za-z\d_+/=.~({{$@%!\[-]|\*[^*])",
    length=key_length,
    near="key",
    behind=f"{_KEY}{_SAID}",
    unless=_NO_SECRET,
)
VALUE_FIRST = Rule(
    "PASSWORD",
    rf"""(?<=["']){_VALUE}{{12,512}}+(?=["']\s{{1,4}}(?i:key|name|id)=["'][\w.:-]{{0,40}}(?i:key|secret|token|password|passwd|pwd)["'])""",
    length=key_length,
    behind=r"""value=["']""",
)
"""In XML, the attribute with the value may be before the one with its name."""
NAMED_KEYS = (NAMED_KEY, VALUE_FIRST)
