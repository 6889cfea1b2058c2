"""Strings that match a pattern, drawn at random."""

import random
import re
import re._constants as codes  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import string
from collections.abc import Callable, Iterable
from typing import Any

PRINTABLE = string.ascii_letters + string.digits + string.punctuation + " "
_CLASSES: dict[Any, str] = {
    codes.CATEGORY_DIGIT: string.digits,
    codes.CATEGORY_SPACE: " ",
    codes.CATEGORY_WORD: string.ascii_letters + string.digits + "_",
}
_NEGATED: dict[Any, Any] = {
    codes.CATEGORY_NOT_DIGIT: codes.CATEGORY_DIGIT,
    codes.CATEGORY_NOT_SPACE: codes.CATEGORY_SPACE,
    codes.CATEGORY_NOT_WORD: codes.CATEGORY_WORD,
}
_SPREAD = 12
"""Most repeats that are drawn above the fewest that a pattern allows."""


def drawn(pattern: str, rng: random.Random, is_fit: Callable[[str], object] = bool) -> str:
    """Return a random string that `pattern` matches and `is_fit` accepts. Look-arounds are not drawn:
    `is_fit` must judge them. Raises `ValueError` if 200 strings are not fit, or if `re` cannot read it."""
    try:
        tree = parser.parse(pattern)
    except (re.error, RecursionError) as error:
        raise ValueError(f"{pattern!r}: {error}") from error
    for _ in range(200):
        text = _text(tree, rng, {})
        if is_fit(text):
            return text
    raise ValueError(f"nothing that was drawn from {pattern!r} is fit")


def _text(tree: Iterable[Any], rng: random.Random, groups: dict[int, str]) -> str:
    return "".join(_piece(code, argument, rng, groups) for code, argument in tree)


def _piece(code: Any, argument: Any, rng: random.Random, groups: dict[int, str]) -> str:
    if code is codes.LITERAL:
        return chr(argument)
    if code is codes.NOT_LITERAL:
        return rng.choice(PRINTABLE.replace(chr(argument), ""))
    if code is codes.ANY:
        return rng.choice(PRINTABLE)
    if code is codes.IN:
        return rng.choice(_members(argument))
    if code is codes.BRANCH:
        return _text(rng.choice(argument[1]), rng, groups)
    if code is codes.SUBPATTERN:
        number, _, _, inner = argument
        groups[number] = _text(inner, rng, groups)
        return groups[number]
    if code is codes.ATOMIC_GROUP:
        return _text(argument, rng, groups)
    if code is codes.GROUPREF:
        return groups.get(argument, "")
    if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
        least, most, inner = argument
        times = rng.randint(least, min(int(most), least + _SPREAD))
        return "".join(_text(inner, rng, groups) for _ in range(times))
    return ""  # Look-arounds and anchors have no character.


def _members(items: list[Any]) -> str:
    members = "".join(_named(code, argument) for code, argument in items)
    if items[0][0] is codes.NEGATE:
        return "".join(char for char in PRINTABLE if char not in members)
    return members


def _named(code: Any, argument: Any) -> str:
    if code is codes.LITERAL:
        return chr(argument)
    if code is codes.RANGE:
        low, high = argument
        return "".join(map(chr, range(low, min(high, low + 255) + 1)))
    if code is codes.CATEGORY:
        if argument in _NEGATED:
            return "".join(char for char in PRINTABLE if char not in _CLASSES[_NEGATED[argument]])
        return _CLASSES[argument]
    return ""
