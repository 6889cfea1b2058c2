"""Features of the words of a run, as rows of the table of weights.

A word shows its letters, its shape, and the lists that have it. Its features join these with those of its
neighbours. Training and use call the same functions.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple
from zlib import crc32

from hooks.builtin.name_model.runs import EDGE, Run

NUM_ROWS = 1 << 18
"""Rows of the table of weights."""
_MASK = (1 << 32) - 1


class Shown(NamedTuple):
    """The parts of a word that features are made of, as numbers of 32 bits."""

    word: int
    shape: int
    beginning: int
    ending: int
    short_ending: int
    lists: int


Show = Callable[[str], Shown]
"""Returns the parts of a word or of another token."""


def shown(token: str, lists: int) -> Shown:
    """The parts of a token that is in these `lists`."""
    lower = token.lower()
    return Shown(
        crc32(lower.encode()),
        crc32(_shape(token).encode()),
        crc32(lower[:3].encode()),
        crc32(lower[-4:].encode()),
        crc32(lower[-2:].encode()),
        lists * 2654435761 & _MASK,
    )


def _shape(token: str) -> str:
    if not token[0].isalpha():
        return token
    if token.isupper():
        return "X" if len(token) == 1 else "XX" if len(token) < 5 else "XXX"
    if token.islower():
        return "x"
    if "." in token:
        return "X.X"
    if "-" in token:
        return "X-x"
    return "Xx" if token[0].isupper() and token[1:].islower() else "xX"


def rows(run: Run, show: Show) -> list[list[int]]:
    """The rows of each word of a run, [words, features]."""
    tokens = [*run.before, *[word.text for word in run.words], run.after, EDGE]
    parts = [show(token) for token in tokens]
    last = len(parts) - 3
    return [_rows_at(parts, i, i == 2, i == last) for i in range(2, last + 1)]


def _rows_at(parts: Sequence[Shown], i: int, is_first: bool, is_last: bool) -> list[int]:
    second, before, this, after, next_after = parts[i - 2 : i + 3]
    word, shape, beginning, ending, short_ending, lists = this
    place = (is_first << 1 | is_last) * 0x9E3779B1
    listed, shaped = lists * 3, shape * 5
    left, right = before.lists * 7, after.lists * 11
    keys = (
        word,
        shaped + lists,
        beginning * 13,
        ending * 17,
        short_ending * 19 + shape,
        listed + place,
        shaped + place * 23,
        before.word * 29,
        before.word * 31 + lists,
        before.word * 37 + second.word * 41,
        before.word * 43 + shape,
        second.word * 47,
        left + before.shape,
        left + listed,
        left + shaped + before.shape * 53,
        after.word * 59,
        after.word * 61 + lists,
        right + after.shape,
        right + listed,
        right + left + listed * 67,
        right + shaped + after.shape * 71,
        before.shape * 73 + shape * 79 + after.shape * 83,
        next_after.word * 89 + lists,
        second.lists * 97 + left + lists,
        before.word * 101 + after.word * 103,
    )
    return [
        ((key + number * 0x85EBCA6B & _MASK) * 0xC2B2AE35 & _MASK) >> 14 for number, key in enumerate(keys, 1)
    ]
