"""Texts made to measure detectors with: a value in a sentence, and what only looks like one.

Values are made from what their formats' publishers say of them, not from what the guards look for. Every
random choice comes from the generator given, so that a seed gives the same texts everywhere.
"""

import hashlib
import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Make = Callable[[random.Random], str]

DIGITS = "0123456789"
UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LOWER = UPPER.lower()
LETTERS = UPPER + LOWER
ALNUM = LETTERS + DIGITS
HEX = DIGITS + "abcdef"
_SETS = {"#": DIGITS, "%": "23456789", "^": UPPER, "_": LOWER, "~": HEX, "*": ALNUM}


@dataclass(frozen=True)
class Sample:
    """A text, and the place and the entity of its value, if it has one."""

    text: str
    entity: str | None = None
    start: int = 0
    end: int = 0


@dataclass(frozen=True)
class Kind:
    """How to make samples of one entity."""

    entity: str
    make: Make
    """A value of it."""
    spoil: Make
    """What is nearly one, and is none."""
    labels: tuple[str, ...]
    """What people call it."""
    needs_label: Callable[[str], bool] = lambda value: False
    """Whether only a label shows that the value is one."""
    frame: Make | None = None
    """What always is around a value, with `{label}` and `{value}`."""
    near_frames: tuple[str, ...] = ()
    """What is around a near miss; by default, what may stand around a value."""


def chars(rng: random.Random, alphabet: str, count: int) -> str:
    return "".join(rng.choices(alphabet, k=count))


def fill(rng: random.Random, *forms: str) -> str:
    """One of `forms`: `#` becomes a digit, `%` one from 2, `^` a capital, `_` a small letter, `~` one of
    sixteen, `*` any letter or digit."""
    return "".join(rng.choice(_SETS.get(char, char)) for char in rng.choice(forms))


def grouped(text: str, sizes: tuple[int, ...], separator: str) -> str:
    parts = []
    for size in sizes:
        parts.append(text[:size])
        text = text[size:]
    return separator.join([*parts, text] if text else parts)


def changed(text: str, rng: random.Random, alphabet: str = DIGITS) -> str:
    """`text` with one of its characters of `alphabet` made another."""
    place = rng.choice([i for i, char in enumerate(text) if char in alphabet])
    return text[:place] + rng.choice([char for char in alphabet if char != text[place]]) + text[place + 1 :]


LABELLED = (
    "My {label} is {value}.",
    "{label}: {value}",
    "{label} {value}, thanks.",
    "Please note the {label} ({value}) for order 48213.",
    '{{"{label}": "{value}", "age": 41}}',
    "| {label} | {value} |\n| age | 41 |",
    "Hello, here is what you asked for on 12 May.\n- {label}: {value}\n- city: Aachen",
    "The {label} on file is “{value}”; is that still right?",
    "**{label}:** {value}\n\nLet me know.",
)
PLAIN = (
    "Use {value} instead.",
    "It was {value}, I think; the other one is gone.",
    "{value}",
    "We wrote down {value} and 3 more, in 2024.",
    "(see {value})",
    "First {value}. Then lunch.",
    "It's '{value}' now.",
    'a = ["{value}", 12.50]  # 2 of 7',
    "Was it {value}?\nYes.",
)
ELSEWHERE = (
    *PLAIN,
    "Order {value} has shipped.",
    "Version {value} is out.",
    "Build: {value}",
    "ref {value}, page 3",
    "item no. {value} costs 12.50",
    "commit {value}",
    "| {value} | ok |",
)


def positives(kind: Kind, rng: random.Random, count: int) -> Iterator[Sample]:
    for _ in range(count):
        value = kind.make(rng)
        is_labelled = kind.needs_label(value) or rng.random() < 0.7
        form = kind.frame(rng) if kind.frame else rng.choice(LABELLED if is_labelled else PLAIN)
        before, after = form.split("{value}")
        before, after = before.format(label=rng.choice(kind.labels)), after.replace("}}", "}")
        yield Sample(before + value + after, kind.entity, len(before), len(before) + len(value))


def near_misses(kind: Kind, rng: random.Random, count: int) -> Iterator[Sample]:
    """Half of them nearly a value, called one as often as not; half of them other things with digits."""
    for i in range(count):
        if i % 2:
            form, value = rng.choice(kind.near_frames or LABELLED + PLAIN), kind.spoil(rng)
        else:
            form, value = rng.choice(ELSEWHERE), rng.choice(OTHERS)(rng)
        yield Sample(form.format(label=rng.choice(kind.labels), value=value))


def date(rng: random.Random) -> str:
    year, month, day = rng.randint(1950, 2030), rng.randint(1, 12), rng.randint(1, 28)
    forms = ("{0}-{1:02}-{2:02}", "{2:02}.{1:02}.{0}", "{1}/{2}/{0}", "{0}{1:02}{2:02}", "{2:02}/{1:02}/{0}")
    return rng.choice(forms).format(year, month, day)


def moment(rng: random.Random) -> str:
    clock = f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}"
    return rng.choice((clock, f"{date(rng)} {clock}", f"{date(rng)}T{clock}Z"))


def version(rng: random.Random) -> str:
    parts = [str(rng.randint(0, 30)) for _ in range(rng.randint(2, 3))]
    return rng.choice(("", "v")) + ".".join(parts) + rng.choice(("", "", "-rc.1", "b2", "+build.77"))


def isbn(rng: random.Random) -> str:
    if rng.random() < 0.5:
        digits = fill(rng, "978#########", "979#########")
        digits += str(-sum(int(d) * (3 if i % 2 else 1) for i, d in enumerate(digits)) % 10)
        return rng.choice(
            (digits, grouped(digits, (3, 1, 2, 6, 1), "-"), grouped(digits, (3, 1, 5, 3, 1), "-"))
        )
    digits = chars(rng, DIGITS, 9)
    check = sum(int(d) * (i + 1) for i, d in enumerate(digits)) % 11
    return grouped(digits + ("X" if check == 10 else str(check)), (1, 3, 5, 1), rng.choice(("-", "-", "")))


def digest(rng: random.Random) -> str:
    made = hashlib.new(rng.choice(("md5", "sha1", "sha256")), rng.randbytes(8)).hexdigest()
    return rng.choice((made, made[: rng.choice((7, 8, 12))], made.upper()))


def some_uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def price(rng: random.Random) -> str:
    amount = rng.randint(1, 10**7)
    return rng.choice((f"${amount / 100:,.2f}", f"{amount / 100:.2f} €", f"EUR {amount:,}", f"£{amount}"))


def colour(rng: random.Random) -> str:
    return "#" + chars(rng, HEX, rng.choice((3, 6, 8)))


def order(rng: random.Random) -> str:
    digits = chars(rng, DIGITS, rng.randint(5, 16))
    forms = (digits, digits, f"ORD-{digits}", f"{digits[:3]}-{digits[3:]}", fill(rng, "^^") + digits)
    return rng.choice(forms)


def parcel(rng: random.Random) -> str:
    return rng.choice(("1Z" + chars(rng, UPPER + DIGITS, 16), fill(rng, "94" + "#" * 20, "#" * 12)))


def code(rng: random.Random) -> str:
    parts = (
        chars(rng, UPPER, rng.randint(2, 4)),
        chars(rng, DIGITS, rng.randint(2, 6)),
        chars(rng, ALNUM, 3),
    )
    return rng.choice(("-", "", "/")).join(parts)


def measure(rng: random.Random) -> str:
    forms = (
        f"{rng.uniform(-90, 90):.6f}, {rng.uniform(-180, 180):.6f}",
        f"{rng.uniform(0, 10):.4f}e-{rng.randint(1, 20)}",
        f"{rng.randint(1, 999):,} {rng.randint(100, 999)} km",
        f"{rng.randint(1, 200)}-{rng.randint(201, 400)}",
        fill(rng, "3.14159265358979######", "%/%# of #######", "%##x%## px"),
    )
    return rng.choice(forms)


def file_name(rng: random.Random) -> str:
    return rng.choice(
        (fill(rng, "IMG_########.jpg", "/var/log/_____.##.gz"), f"{fill(rng, '____')}_{date(rng)}.csv")
    )


OTHERS = (
    *(date, moment, version, isbn, digest, some_uuid, price),
    *(colour, order, parcel, code, measure, file_name),
)
"""What anything may be mistaken for."""
