"""Texts that match a pattern, drawn at random."""

import random
import re
from re import _parser
from typing import Any

_CHARS = [chr(code) for code in range(33, 127)]
_MOST_REPEATS = 40


def drawn_from(pattern: str, rng: random.Random) -> str:
    """A match of `pattern` without its look-arounds. A repeat has at most 40 more than its fewest."""
    return _sequence(_parser.parse(pattern), rng)


def _sequence(parts: Any, rng: random.Random) -> str:
    return "".join(_one(str(kind), value, rng) for kind, value in parts)


def _one(kind: str, value: Any, rng: random.Random) -> str:
    match kind:
        case "LITERAL":
            return chr(value)
        case "IN":
            return rng.choice([char for char in _CHARS if _is_in(value, char)])
        case "SUBPATTERN":
            return _sequence(value[3], rng)
        case "BRANCH":
            return _sequence(rng.choice(value[1]), rng)
        case "MAX_REPEAT" | "POSSESSIVE_REPEAT":
            fewest, most, part = value
            count = rng.randint(fewest, min(most, fewest + _MOST_REPEATS))
            return "".join(_sequence(part, rng) for _ in range(count))
        case "ASSERT" | "ASSERT_NOT":
            return ""
    raise ValueError(kind)


def _is_in(members: Any, char: str) -> bool:
    return any(_has(str(kind), value, char) for kind, value in members)


def _has(kind: str, value: Any, char: str) -> bool:
    match kind:
        case "LITERAL":
            return ord(char) == int(value)
        case "RANGE":
            return bool(value[0] <= ord(char) <= value[1])
        case "CATEGORY":
            known = {"CATEGORY_DIGIT": r"\d", "CATEGORY_WORD": r"\w"}
            return re.fullmatch(known[str(value)], char, re.ASCII) is not None
    raise ValueError(kind)
