"""The model that ships: a table of weights, and the lists of names, decoded in Python alone.

A row of the table has a weight for each kind. The weights stand in one number, 16 bits apart, so that one
sum adds up all kinds. `tools/names/train.py` makes the files.
"""

import sys
import zlib
from array import array
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from math import exp
from typing import Literal
from zlib import crc32

from hooks.builtin.name_model.features import NUM_ROWS, Shown, rows, shown
from hooks.builtin.name_model.runs import Run

Kind = Literal["PERSON", "LOCATION", "ORGANIZATION"]
KINDS: tuple[Kind, ...] = ("PERSON", "LOCATION", "ORGANIZATION")
"""The kinds of names, by Presidio's names for entities. In a row, the weight for no name is before theirs."""
OFFSET = 128
"""The number that is added to each weight in the table, so that none is negative."""
_LANES = 16 * len(KINDS)
_LANE = (1 << 16) - 1
_WORDS = 1 << 14
"""Most words whose parts are kept."""


class NameModel:
    """Says for each word of a run how likely it is part of a name of each kind."""

    def __init__(self, weights: "array[int]", scale: float, lists: Mapping[int, int]) -> None:
        """`weights`: the rows, [NUM_ROWS]. `scale`: what one step of a weight is worth. `lists`: the lists of
        a word, by the CRC-32 of its small letters."""
        self._weight = weights.__getitem__
        self._scale = scale
        self._lists = lists
        self._show = lru_cache(_WORDS)(self._shown)

    def shares(self, run: Run) -> list[tuple[float, ...]]:
        """The probability of each of `KINDS`, for each word of the run, [words, kinds]."""
        return [self._share(of_word) for of_word in rows(run, self._show)]

    def _share(self, of_word: list[int]) -> tuple[float, ...]:
        total = sum(map(self._weight, of_word))
        scale = self._scale
        none = total & _LANE
        odds = [
            exp(min(60.0, ((total >> lane & _LANE) - none) * scale)) for lane in range(16, _LANES + 1, 16)
        ]
        whole = 1.0 + sum(odds)
        return tuple(one / whole for one in odds)

    def _shown(self, token: str) -> Shown:
        return shown(token, lists_of(self._lists, token))


def lists_of(lists: Mapping[int, int], token: str) -> int:
    """The lists that have a token, or the parts of it that hyphens join."""
    lower = token.lower()
    found = lists.get(crc32(lower.encode()), 0)
    if not found and "-" in lower:
        for part in lower.split("-"):
            found |= lists.get(crc32(part.encode()), 0)
    return found


@lru_cache(1)
def shipped() -> NameModel:
    """The model that ships. It is read once."""
    return read(files(__package__).joinpath("names.bin").read_bytes())


def packed(weights: "array[int]", scale: float, lists: Mapping[int, int]) -> bytes:
    """A model's file: the scale, the number of words, the words' numbers, their lists, the weights."""
    words = sorted(lists)
    head = array("d", [scale, float(len(words))])
    parts = (head, array("I", words), array("H", [lists[word] for word in words]), weights)
    return zlib.compress(b"".join(_little(part) for part in parts), 9)


def read(file: bytes) -> NameModel:
    data = zlib.decompress(file)
    head = _native("d", data[:16])
    scale, count = head[0], int(head[1])
    words = _native("I", data[16 : 16 + 4 * count])
    lists = _native("H", data[16 + 4 * count : 16 + 6 * count])
    weights = _native("Q", data[16 + 6 * count :])
    if len(weights) != NUM_ROWS:
        raise ValueError("the model of names has another number of rows")
    return NameModel(weights, scale, dict(zip(words, lists, strict=True)))


def _little(values: "array[int] | array[float]") -> bytes:
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()


def _native(code: str, data: bytes) -> "array[int]":
    values: array[int] = array(code, data)
    if sys.byteorder == "big":
        values.byteswap()
    return values
