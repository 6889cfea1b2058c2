"""Numbers and ids that programs write, drawn at random: they are nobody's data, and no secrets.

What a guard finds in them is false. Each value is in each of several texts that say nothing about it.
"""

import base64
import hashlib
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from benchmarks.samples import DIGITS, HEX, LOWER, UPPER, chars
from hooks.detect.detector import Detector

Make = Callable[[random.Random], str]


class Number(NamedTuple):
    """One kind of number or id."""

    name: str
    make: Make
    most: float = 0.001
    """The share of its values that a guard may find."""


CONTEXTS = {
    "alone": "{v}",
    "sentence": "It was {v}, then it ended.",
    "JSON": '{{"value": {v}, "ok": true}}',
    "JSON string": '{{"id": "{v}", "ok": true}}',
    "log": "2026-03-02T10:15:07Z INFO worker-3 done {v} in 12 ms",
    "address": "GET https://api.example.com/v1/items/{v}?page=2",
    "table": "| 17 | {v} | open |",
    "code": "assert find({v}) == items[0]",
    "CSV": "a7,{v},open",
}
_LINES = 100
"""Texts that are read as one, a line each."""


def share_found(detector: Detector, kind: Number, seed: int, count: int) -> dict[str, float]:
    """Return the share of `count` values of a kind in which `detector` finds something, by context."""
    rng = random.Random(f"{seed} {kind.name}")
    values = [kind.make(rng) for _ in range(count)]
    return {name: _num_found(detector, form, values) / count for name, form in CONTEXTS.items()}


def _num_found(detector: Detector, form: str, values: Sequence[str]) -> int:
    texts = [form.format(v=value) for value in values]
    if form == "{v}":
        return sum(bool(detector.scan(text)[0]) for text in texts)
    found = 0
    for first in range(0, len(texts), _LINES):
        lines = texts[first : first + _LINES]
        matches, _ = detector.scan("\n".join(lines))
        ends = [*_ends(lines)]
        found += len({next(i for i, end in enumerate(ends) if match.start < end) for match in matches})
    return found


def _ends(lines: Sequence[str]) -> Iterator[int]:
    end = 0
    for line in lines:
        end += len(line) + 1
        yield end


# --- Times, and ids that have one ------------------------------------------------------------------------

_FIRST = datetime(2024, 1, 1, tzinfo=UTC)
_LAST = datetime(2028, 1, 1, tzinfo=UTC)


def _moment(rng: random.Random) -> datetime:
    return _FIRST + timedelta(seconds=rng.random() * (_LAST - _FIRST).total_seconds())


def _time(per_second: int) -> Make:
    return lambda rng: str(int(_moment(rng).timestamp()) * per_second + rng.randrange(per_second))


def _snowflake(epoch_ms: int, bits: int) -> Make:
    """An id whose upper bits are milliseconds since `epoch_ms`."""
    return lambda rng: str((int(_moment(rng).timestamp() * 1000) - epoch_ms << bits) | rng.getrandbits(bits))


def _dated(form: str, num_digits: int) -> Make:
    return lambda rng: _moment(rng).strftime(form) + chars(rng, DIGITS, num_digits)


_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def _ulid(rng: random.Random) -> str:
    number = int(_moment(rng).timestamp() * 1000) << 80 | rng.getrandbits(80)
    return "".join(_CROCKFORD[number >> 5 * i & 31] for i in reversed(range(26)))


def _uuid4(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def _uuid7(rng: random.Random) -> str:
    number = int(_moment(rng).timestamp() * 1000) << 80 | 7 << 76 | rng.getrandbits(76)
    made = str(uuid.UUID(int=number & ~(3 << 62) | 2 << 62))
    return rng.choice((made, made.upper()))


# --- Numbers ----------------------------------------------------------------------------------------------


def _digits(count: int) -> Make:
    return lambda rng: rng.choice("123456789") + chars(rng, DIGITS, count - 1)


def _article(count: int) -> Make:
    """A number of GS1, with its check digit."""

    def make(rng: random.Random) -> str:
        body = chars(rng, DIGITS, count - 1)
        total = sum(int(digit) * (1 if i % 2 else 3) for i, digit in enumerate(reversed(body)))
        return f"{body}{-total % 10}"

    return make


def _isbn(rng: random.Random) -> str:
    body = rng.choice(("978", "979")) + chars(rng, DIGITS, 9)
    digits = f"{body}{-sum(int(d) * (3 if i % 2 else 1) for i, d in enumerate(body)) % 10}"
    ten = body[3:]
    rest = -sum(int(digit) * (10 - i) for i, digit in enumerate(ten)) % 11
    old = ten + ("X" if rest == 10 else str(rest))
    return rng.choice((digits, f"{digits[:3]}-{digits[3]}-{digits[4:8]}-{digits[8:12]}-{digits[12]}", old))


def _order(rng: random.Random) -> str:
    digits = chars(rng, DIGITS, rng.randint(5, 16))
    forms = ("ORD-{}", "INV-{}", "PO{}", "SO_{}", "order-{}", "#{}", "R{}", "INV-2027-{}", "TKT/{}", "cus-{}")
    return rng.choice(forms).format(digits)


def _amazon_order(rng: random.Random) -> str:
    return f"{chars(rng, '123', 1)}{chars(rng, DIGITS, 2)}-{chars(rng, DIGITS, 7)}-{chars(rng, DIGITS, 7)}"


def _console_account(rng: random.Random) -> str:
    return f"{_digits(4)(rng)}-{chars(rng, DIGITS, 4)}-{chars(rng, DIGITS, 4)}"


def _telegram(rng: random.Random) -> str:
    return rng.choice((f"-100{_digits(10)(rng)}", f"-{_digits(10)(rng)}", _digits(10)(rng)))


def _phone_like(rng: random.Random) -> str:
    body = f"{rng.randint(2, 9)}{chars(rng, DIGITS, 9)}"
    return rng.choice((body, f"1{body}", f"0{body}", f"00{body}", chars(rng, DIGITS, 10)))


def _thousands(rng: random.Random) -> str:
    amount = rng.randint(10**3, 10 ** rng.randint(4, 12))
    return f"{amount:,}".replace(",", rng.choice((" ", ",", "'", "_", ".")))


def _price(rng: random.Random) -> str:
    amount = rng.randint(1, 10**7)
    return rng.choice((f"${amount / 100:,.2f}", f"{amount / 100:.2f} €", f"EUR {amount:,}", f"£{amount}"))


def _coordinates(rng: random.Random) -> str:
    north, east = rng.uniform(-90, 90), rng.uniform(-180, 180)
    minutes = f"{abs(north):02.0f}{rng.uniform(0, 60):07.4f},N,{abs(east):03.0f}{rng.uniform(0, 60):07.4f},E"
    return rng.choice(
        (f"{north:.6f}, {east:.6f}", f"{north:.5f},{east:.5f}", f"@{north:.7f},{east:.7f},17z", minutes)
    )


def _size(rng: random.Random) -> str:
    number = rng.randint(10**6, 10**12)
    return f"{number}{rng.choice(('', ' B', ' bytes', 'B', ' KB', 'KiB'))}"


def _port(rng: random.Random) -> str:
    return f"{rng.choice(('localhost', 'db.internal', 'web-3', ''))}:{rng.randint(1024, 65535)}"


# --- Versions, digests, names -----------------------------------------------------------------------------


def _version(rng: random.Random) -> str:
    parts = [str(rng.randint(0, rng.choice((9, 30, 250)))) for _ in range(3)]
    ending = rng.choice(("", "", "-rc.1", "b2", "+build.77", f"-{chars(rng, DIGITS, 5)}", ".post1", ".dev0"))
    return rng.choice(("", "v")) + ".".join(parts) + ending


def _build(rng: random.Random) -> str:
    """Four numbers, as browsers, drivers and programs for Windows have them. 10.1.2.3 is an address."""
    first, second = rng.choice((*range(1, 10), *range(11, 31))), rng.randint(0, 30)
    forms = (
        f"{first}.{second}.{rng.randint(256, 30000)}.{rng.randint(0, 9999)}",
        f"Chrome/{rng.randint(80, 160)}.0.{rng.randint(0, 9999)}.{rng.randint(0, 250)}",
        f"v{first}.{second}.{rng.randint(0, 30)}.{rng.randint(0, 250)}",
        f"{first}.{second}.{rng.randint(0, 30)}.{rng.randint(0, 30)}",
        f"pkg=={first}.{second}.{rng.randint(0, 30)}.{rng.randint(0, 99)}",
    )
    return rng.choice(forms)


def _digest(name: str) -> Make:
    def make(rng: random.Random) -> str:
        made = hashlib.new(name, rng.randbytes(8), usedforsecurity=False).hexdigest()
        return rng.choice((made, made, made.upper()))

    return make


def _short_hash(rng: random.Random) -> str:
    return chars(rng, HEX, rng.randint(7, 16))


def _colour(rng: random.Random) -> str:
    return "#" + chars(rng, rng.choice((HEX, HEX.upper())), rng.choice((3, 6, 8)))


def _described(rng: random.Random) -> str:
    return f"{_version(rng)}-{rng.randint(1, 900)}-g{chars(rng, HEX, rng.randint(7, 12))}"


def _image(rng: random.Random) -> str:
    made = f"sha256:{chars(rng, HEX, 64)}"
    return rng.choice(
        (made, f"registry.example.com/team/app@{made}", f"app:{_version(rng)}", chars(rng, HEX, 12))
    )


_POD = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of the random parts of names in Kubernetes."""


def _pod(rng: random.Random) -> str:
    name = rng.choice(("api", "worker", "ingress-nginx-controller", "coredns", "web-frontend"))
    return f"{name}-{chars(rng, _POD, rng.randint(8, 10))}-{chars(rng, _POD, 5)}"


def _trace(rng: random.Random) -> str:
    return rng.choice(
        (
            f"00-{chars(rng, HEX, 32)}-{chars(rng, HEX, 16)}-01",
            f"1-{chars(rng, HEX, 8)}-{chars(rng, HEX, 24)}",
        )
    )


def _request(rng: random.Random) -> str:
    alphabet = UPPER + LOWER + DIGITS
    forms = (
        f"req_{chars(rng, alphabet, 24)}",
        f"chatcmpl-{chars(rng, alphabet, 29)}",
        f"call_{chars(rng, alphabet, 24)}",
        f"toolu_01{chars(rng, alphabet, 22)}",
        f"i-{chars(rng, HEX, 17)}",
        chars(rng, alphabet, 21),
        chars(rng, HEX, 24),
        chars(rng, alphabet, 27),
        base64.b64encode(rng.randbytes(18)).decode(),
    )
    return rng.choice(forms)


def _code(rng: random.Random) -> str:
    letters, digits = chars(rng, UPPER, rng.randint(2, 4)), chars(rng, DIGITS, rng.randint(2, 6))
    return rng.choice(("-", "", "/")).join((letters, digits))


def _parcel(rng: random.Random) -> str:
    return rng.choice(
        ("1Z" + chars(rng, UPPER + DIGITS, 16), "94" + chars(rng, DIGITS, 20), chars(rng, DIGITS, 12))
    )


NUMBERS = (
    Number("AWS account in an ARN", lambda rng: f"arn:aws:iam::{_digits(12)(rng)}:role/deploy"),
    Number("AWS account, 4-4-4", _console_account),
    Number("GCP project", lambda rng: f"projects/{_digits(12)(rng)}/secrets/x"),
    Number("seconds", _time(1)),
    Number("milliseconds", _time(1000)),
    Number("microseconds", _time(10**6)),
    Number("nanoseconds", _time(10**9)),
    Number("YYYYMMDDhhmmss", _dated("%Y%m%d%H%M%S", 0)),
    Number("YYMMDDNNNN", _dated("%y%m%d", 4)),
    Number("YYMMDD-NNNN", _dated("%y%m%d-", 4)),
    Number("YYYYMMDDNNNN", _dated("%Y%m%d", 4)),
    Number("snowflake, X", _snowflake(1_288_834_974_657, 22)),
    Number("snowflake, Discord", _snowflake(1_420_070_400_000, 22)),
    Number("snowflake, Mastodon", _snowflake(0, 16)),
    Number("snowflake, Instagram", _snowflake(1_314_220_021_721, 23)),
    Number("snowflake of 18 digits", _digits(18)),
    Number("id of Facebook", lambda rng: f"1000{_digits(11)(rng)}"),
    *(Number(f"id of {count} digits", _digits(count)) for count in (8, 9, 10, 11, 12, 13, 14, 17, 19)),
    Number("id of 15 digits", _digits(15), most=0.004),
    Number("id of 16 digits", _digits(16), most=0.03),
    Number("Telegram chat", _telegram),
    Number("digits like a phone's", _phone_like),
    Number("EAN-8", _article(8)),
    Number("EAN-13", _article(13)),
    Number("UPC", _article(12)),
    Number("ISBN", _isbn),
    Number("order with a prefix", _order),
    Number("order of Amazon", _amazon_order),
    Number("parcel", _parcel),
    Number("code of a part", _code),
    Number("version", _version),
    Number("version of four numbers", _build),
    Number("git describe", _described),
    Number("coordinates", _coordinates),
    Number("number in thousands", _thousands),
    Number("price", _price),
    Number("size in bytes", _size),
    Number("host and port", _port),
    Number("MD5", _digest("md5")),
    Number("SHA-1", _digest("sha1")),
    Number("SHA-256", _digest("sha256")),
    Number("short hash", _short_hash),
    Number("UUID 4", _uuid4),
    Number("UUID 7", _uuid7),
    Number("ULID", _ulid),
    Number("image of a container", _image),
    Number("pod of Kubernetes", _pod),
    Number("trace", _trace),
    Number("request", _request),
    Number("hex colour", _colour),
)  # fmt: skip
