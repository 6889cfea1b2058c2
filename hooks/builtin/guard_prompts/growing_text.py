"""A text that grows, as tokens of a vocabulary that is not the one it was written in.

More text can change the last tokens of a text: `play` and `ing` may be one token. So each addition says how
many of the earlier tokens are kept. All tokens together are those of the whole text, wherever it was cut.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from engine.protocol import Tokenizer

T = TypeVar("T")

_ON_THREAD = 4096
"""More characters are tokenized on a thread."""
_MANY = 160
"""A tail of this many characters is made shorter."""
_FEW = 48
"""Least characters of a tail that was made shorter."""
_WORDS = 4
"""Least words of a tail that was made shorter. More text can change the last two words of a text."""
_TRIES = 4
"""Words that are tried as the beginning of a tail."""
_OPEN = 3
"""Most tokens that wait for more text. If none waited, a guard with a larger vocabulary than the served
model's would withdraw up to 45 % of its tokens. With these it withdraws less than 1 %."""
_LONGEST = 2048
"""Most characters of a tail, except those of the last addition."""


class Addition(NamedTuple):
    """The change that an addition makes to a text's tokens."""

    num_kept: int
    """The first tokens of the text that are kept. Earlier tokens after them are void."""
    ids: list[int]
    """The ids of the tokens that follow."""
    ends: list[int]
    """For each of `ids`, the characters of the text that are whole at its end."""


class GrowingText:
    """One text. An addition costs time in proportion to its own length, not to the text's.

    Only the tail of the text is read again. The tail begins at the start of a word, where reading it by
    itself gives the ids that the text has there. Only a word longer than `_LONGEST` may have other ids: it is
    read in parts.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._start = 0
        """The place of the tail in the text, in characters."""
        self._num_before = 0
        """Tokens before the tail."""
        self._tail = ""
        self._ids: list[int] = []
        """The ids that were given of the tail."""
        self._shorten_at = _MANY

    @property
    def num_tokens(self) -> int:
        """Tokens that were given, and are kept."""
        return self._num_before + len(self._ids)

    @property
    def num_characters(self) -> int:
        return self._start + len(self._tail)

    def add(self, text: str, *, is_final: bool = False) -> Addition:
        """Append `text`. The last word, or its last `_OPEN` tokens, is given with a later addition: more text
        often changes it. With `is_final` it is given as it is; more text may follow all the same. Raises
        `ValueError` as `Tokenizer.encode_text`."""
        self._tail += text
        tokens = self._tokenizer.encode_text(self._tail)
        same = _num_same(self._ids, tokens.ids)
        num_open = 0 if is_final else _num_open(tokens.words)
        num = max(same, len(tokens.ids) - num_open)
        ends = [self._start + end for end in tokens.ends[same:num]]
        addition = Addition(self._num_before + same, tokens.ids[same:num], ends)
        self._ids = tokens.ids[:num]
        if len(self._tail) > self._shorten_at and not is_final:
            self._shorten(tokens.ids, tokens.ends, tokens.words)
        return addition

    def followed_by(self, text: str) -> tuple[int, list[int]]:
        """The tokens if `text` came next and were the end: how many of the first ones are kept, and the ids
        of those after them. The text does not change. Raises `ValueError` as `Tokenizer.encode_text`."""
        return self._num_before, self._tokenizer.encode_text(self._tail + text).ids

    def _shorten(self, ids: list[int], ends: list[int], words: list[int]) -> None:
        """Begin the tail at a later word."""
        for num, place in self._places(ends, words):
            if self._tokenizer.encode_text(self._tail[place:]).ids == ids[num:]:
                self._move(num, place)
                return
        if len(self._tail) > _LONGEST:
            middle = enumerate(ends, start=1)
            num, place = next((one for one in middle if one[1] > _LONGEST // 2), (len(ids), len(self._tail)))
            self._move(num, place)
            return
        self._shorten_at = min(2 * len(self._tail), _LONGEST)

    def _places(self, ends: list[int], words: list[int]) -> Iterator[tuple[int, int]]:
        """The beginnings of the last words that may begin the tail: tokens and characters before each. Some
        tokenizers put a space before each text that they read, so a tail may also begin after a space."""
        tail = self._tail
        begins = [
            num
            for num in range(1, len(ends))
            if words[num] != words[num - 1] or (tail[ends[num - 1]] == " " != tail[ends[num - 1] - 1])
        ]
        fitting = [num for num in begins[: -_WORDS + 1] if len(tail) - ends[num - 1] >= _FEW]
        for num in reversed(fitting[-_TRIES:]):
            place = ends[num - 1]
            yield num, place
            if tail[place] == " ":
                yield num, place + 1

    def _move(self, num: int, place: int) -> None:
        self._num_before += num
        self._start += place
        self._tail = self._tail[place:]
        self._ids = self._ids[num:]
        self._shorten_at = _MANY


def _num_open(words: list[int]) -> int:
    """The number of last tokens that are of the last word, `_OPEN` at most."""
    return sum(word == words[-1] for word in words[-_OPEN:])


def _num_same(one: list[int], other: list[int]) -> int:
    """The number of first ids that are the same."""
    for i, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return i
    return min(len(one), len(other))


async def tokenize(num_characters: int, call: Callable[[], T]) -> T:
    """The result of `call`, which tokenizes so many characters. It may run on another thread, so that other
    streams continue meanwhile."""
    if num_characters <= _ON_THREAD:
        return call()
    return await asyncio.to_thread(call)
