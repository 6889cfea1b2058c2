"""The typographic dress in which a model writes values: the same value with other characters.

Each dress changes a value, and returns None if the value has nothing that it changes.
"""

import html
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import quote

from benchmarks.cases.case import Case

Dress = Callable[[str, random.Random], str | None]
_HOMOGLYPHS = str.maketrans("aeopcxyiABEHKMOPCTX", "аеорсхуіАВЕНКМОРСТХ")
_ARABIC = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
_FULL = {code: code + 0xFEE0 for code in range(0x21, 0x7F) if chr(code).isalnum()}
_FULL_MARKS = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}


def _changed(old: str, new: str) -> Dress:
    def dress(value: str, rng: random.Random) -> str | None:
        return value.replace(old, new) if old in value else None

    return dress


def _inside(mark: str) -> Dress:
    """A mark that is not seen, at one place inside, or at three."""

    def dress(value: str, rng: random.Random) -> str | None:
        places = sorted(
            rng.sample(range(1, len(value)), min(rng.choice((1, 3)), len(value) - 1)), reverse=True
        )
        for place in places:
            value = value[:place] + mark + value[place:]
        return value

    return dress


def _translated(table: dict[int, int] | dict[int, str]) -> Dress:
    def dress(value: str, rng: random.Random) -> str | None:
        changed = value.translate(table)
        return changed if changed != value else None

    return dress


def _wrapped(value: str, rng: random.Random) -> str | None:
    """A long key over two lines, with an indent; other values at a space."""
    if " " in value:
        place = rng.choice([found.start() for found in re.finditer(" ", value)])
        return f"{value[:place]}\n    {value[place + 1 :]}"
    if len(value) < 32:
        return None
    place = rng.randint(12, len(value) - 12)
    return f"{value[:place]}\n    {value[place:]}"


def _entities(value: str, rng: random.Random) -> str | None:
    """HTML entities of the punctuation."""
    marks = {
        "@": "&#64;",
        ".": "&#46;",
        "-": "&#45;",
        "+": "&#x2B;",
        ":": "&colon;",
        "_": "&#95;",
        "/": "&sol;",
    }
    changed = "".join(marks.get(char, char) for char in html.escape(value))
    return changed if changed != value else None


def _percent(value: str, rng: random.Random) -> str | None:
    changed = quote(value, safe="")
    return changed if changed != value else None


def _percent_whole(value: str, rng: random.Random) -> str | None:
    return "".join(f"%{byte:02X}" for byte in value.encode())


def _hexadecimal(value: str, rng: random.Random) -> str | None:
    return "".join(rf"\x{byte:02x}" for byte in value.encode())


def _json_escaped(value: str, rng: random.Random) -> str | None:
    return "".join(rf"\u{ord(char):04x}" for char in value) if max(map(ord, value)) < 0x10000 else None


def _homoglyphs(value: str, rng: random.Random) -> str | None:
    """Letters of another script in the first characters, as in the prefix of a key."""
    if not re.match(r"[A-Za-z]{2}[\w.-]{18}", value):
        return None
    changed = value[:6].translate(_HOMOGLYPHS) + value[6:]
    return changed if changed != value else None


def _arabic(value: str, rng: random.Random) -> str | None:
    """Digits of another script, in numbers."""
    is_number = any(map(str.isdigit, value)) and not any(char.isascii() and char.isalpha() for char in value)
    return value.translate(_ARABIC) if is_number else None


DRESSES: dict[str, Dress] = {
    "no-break space U+00A0": _changed(" ", "\u00a0"),
    "narrow no-break space U+202F": _changed(" ", "\u202f"),
    "figure space U+2007": _changed(" ", "\u2007"),
    "non-breaking hyphen U+2011": _changed("-", "\u2011"),
    "en dash U+2013": _changed("-", "\u2013"),
    "minus U+2212": _changed("-", "\u2212"),
    "full-width letters and digits": _translated(_FULL),
    "full-width, also marks": _translated(_FULL_MARKS),
    "zero-width space inside": _inside("\u200b"),
    "soft hyphen inside": _inside("\u00ad"),
    "word joiner inside": _inside("\u2060"),
    "line break with indent": _wrapped,
    "HTML entities": _entities,
    "percent-encoded marks": _percent,
    "percent-encoded whole": _percent_whole,
    r"\x escapes": _hexadecimal,
    r"\u escapes": _json_escaped,
    "homoglyphs at the beginning": _homoglyphs,
    "Arabic digits": _arabic,
}


_PER_ENTITY = 4


def cases(plain: Iterable[Case], seed: int = 1, most: int = 60) -> Iterator[Case]:
    """Return up to `most` cases of each dress, made from a few cases of each entity."""
    rng = random.Random(f"{seed} dress")
    given = _few_of_each(plain)
    for name, dress in DRESSES.items():
        rng.shuffle(given)
        count = 0
        for case in given:
            changed = dress(case.value, rng) if case.value and len(case.value) <= 200 else None
            if changed is None or count == most:
                continue
            text = case.text[: case.start] + changed + case.text[case.end :]
            yield Case(
                "dressed",
                f"{name}|{case.entity}",
                text,
                changed,
                case.start,
                case.start + len(changed),
                case.value,
            )
            count += 1


def _few_of_each(plain: Iterable[Case]) -> list[Case]:
    counts: Counter[str] = Counter()
    few: list[Case] = []
    for case in plain:
        if case.value and case.group != "bare keys" and counts[case.entity] < _PER_ENTITY:
            counts[case.entity] += 1
            few.append(case)
    return few


def prefixed(plain: Iterable[Case]) -> Iterator[Case]:
    """Return addresses with `word/` before them."""
    for case in plain:
        if case.entity == "IP_ADDRESS" and case.value:
            text, end = f"web01/{case.value}", 6 + len(case.value)
            yield Case("dressed", "word/ before an address|IP_ADDRESS", text, case.value, 6, end, case.value)
