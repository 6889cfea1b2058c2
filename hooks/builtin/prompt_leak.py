"""Passages of the request's system prompt in the model's output: `--hook prompt_leak`.

A leak is a run of `min_words` words that follow each other in the prompt. White space, punctuation, markup
and the differences that `folding` removes do not matter. Numbers of up to three digits, as in a list, are
ignored in the prompt and in the output. In scripts without spaces between words, two characters count as a
word. The model may repeat shorter passages of the prompt, or a whole prompt that is shorter.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import Annotated, Any, Literal, Unpack

from pydantic import Field

from hooks import Chunk, Verdict, checked, emit
from hooks.detect.acting_guard import Options
from hooks.detect.argument_types import Count
from hooks.detect.detector import Findings, Match
from hooks.detect.folding import WITHOUT_SPACES, Folding, forms
from hooks.detect.readings import LOOSE, Reader
from hooks.detect.restoring import expanded
from hooks.detect.span_guard import SpanGuard

ENTITY = "prompt_leak"
Role = Literal["system", "developer", "user", "assistant", "tool", "function"]
_REACH = 16
"""Most invisible characters in a row inside one word. A longer row ends the word."""
_CACHED = 32
"""Most prompts that are kept ready for later requests with the same prompt."""
_WORD = re.compile(rf"[{WITHOUT_SPACES}]|[^\W_{WITHOUT_SPACES}]+")
_OF_WORD = re.compile(rf"[^\W_{WITHOUT_SPACES}]").match
_ASCII_WORDS = {code: chr(code) if chr(code).isalnum() else " " for code in range(128)}
"""A table for `str.translate` that leaves only words of an ASCII text."""
_FOLDING = Folding()


class PromptLeak:
    """Finds passages of the request's own system prompt."""

    @checked
    def __init__(
        self,
        *,
        min_words: Count = 8,
        roles: Annotated[Sequence[Role], Field(min_length=1)] = ("system", "developer"),
        allow: Sequence[str] = (),
        **options: Unpack[Options],
    ) -> None:
        """`min_words`: the number of successive words of the prompt that are a leak. `roles`: the roles whose
        messages are the prompt. `allow`: passages of the prompt that the model may repeat, as an address or a
        greeting. Each has at least `min_words` words: a shorter one is never a leak.

        The guard holds text that could become a leak: at most twice the characters of the prompt's longest
        run, plus 80. An escape or a tag counts as one character. A completion has no messages to leak.
        Raises `ValueError` for invalid arguments.
        """
        if options.get("prompt") is not None:
            raise ValueError("prompt: this guard is about answers")
        self.may_rewind = options.get("action") == "rewind"
        self._min_words = min_words
        self._roles = frozenset[str](roles)
        self._allowed = tuple(map(_plain, allow))
        for text, plain in zip(allow, self._allowed, strict=True):
            if sum(map(_weight, plain.split())) < 2 * min_words:
                raise ValueError(
                    f"allow: {text!r} has fewer than {min_words} words, so it may be said anyway"
                )
        self._options = options
        self._guard_for = lru_cache(_CACHED)(self._made)
        self._made(())

    copyable = True

    def __call__(self, chunk: Chunk) -> Verdict:
        guard: SpanGuard | None = chunk.state.get("guard")
        if guard is None:
            texts = [*_texts(chunk.request.messages, self._roles)]
            # After a guard that brings values back, the answer has them; before it, their placeholders.
            texts += [expanded(text, chunk.caller_values) for text in texts]
            prompt = tuple(dict.fromkeys(texts))
            guard = chunk.state["guard"] = self._guard_for(prompt)
        return guard(chunk) if guard.detector.longest else emit(chunk.pending)

    def _made(self, prompt: tuple[str, ...]) -> SpanGuard:
        detector = LeakDetector(prompt, self._min_words, self._allowed)
        return SpanGuard(Reader(detector, LOOSE), **self._options)


def _texts(messages: Iterable[Mapping[str, Any]], roles: frozenset[str]) -> Iterator[str]:
    for message in messages:
        if message.get("role") in roles:
            content = message.get("content") or ""
            parts = [content] if isinstance(content, str) else content
            yield "\n".join(part if isinstance(part, str) else part.get("text") or "" for part in parts)


def _plain(text: str) -> str:
    """Return the text's words, with a space before, between and after them."""
    folded = _FOLDING.plain(text)
    # If folding removed no characters, this faster way gives the same words.
    words = _WORD.findall(folded) if len(folded) == len(text) else _Words(text).all
    return f" {' '.join(word for word in words if not _is_number(word))} "


def _is_number(word: str) -> bool:
    return len(word) <= 3 and word.isdecimal()


def _goes_on(word: str) -> bool:
    """Whether further characters may belong to the word."""
    return word.isascii() or _OF_WORD(word) is not None


def _weight(word: str) -> int:
    """Return the word's weight, counted in half words."""
    return 2 if _goes_on(word) else 1


class _Words:
    """The folded words of `text[start:]`, and their places in `text`."""

    def __init__(self, text: str, start: int = 0) -> None:
        self._text = text
        self._start = start
        self._folded, origins = _FOLDING.fold(text[start:])
        self._is_even = isinstance(origins, range)
        self._spans: list[tuple[int, int]] = []
        if not self._is_even:
            self.all = self._separated(origins)
        elif self._folded.isascii():
            self.all = self._folded.translate(_ASCII_WORDS).split()
        else:
            self.all = _WORD.findall(self._folded)

    def _separated(self, origins: Sequence[int]) -> list[str]:
        """Return the words, and note their places. More than `_REACH` invisible characters end a word."""
        words: list[str] = []
        for found in _WORD.finditer(self._folded):
            first, last = found.span()
            ends = [i for i in range(first + 1, last) if origins[i] - origins[i - 1] > _REACH]
            for end in [*ends, last]:
                words.append(self._folded[first:end])
                self._spans.append((self._start + origins[first], self._start + origins[end - 1] + 1))
                first = end
        return words

    def span(self, index: int) -> tuple[int, int]:
        """Return the place of the word in the text."""
        place = self._spans[-1][1] - self._start if self._spans else 0
        for word in self.all[len(self._spans) : index + 1]:
            begin = self._folded.index(word, place)
            place = begin + len(word)
            self._spans.append((self._start + begin, self._start + place))
        return self._spans[index]

    def without_numbers(self, first: int, end: int) -> tuple[list[str], Sequence[int]]:
        """Return the words from `first` up to `end` that are not numbers as in a list. Also return their
        indices, and after them `end`."""
        words = self.all[first:end]
        if "".join(words).isalpha():
            return words, range(first, end + 1)
        indices = [i for i in range(first, end) if not _is_number(self.all[i])]
        return [self.all[i] for i in indices], [*indices, end]

    def begins_before(self) -> bool:
        if not self._start or not self.all or self._text[self._start - 1].isspace():
            return False
        return _goes_on(self.all[0]) and _goes_on_from_left(self._text, self.span(0)[0])

    def may_go_on(self) -> bool:
        """Whether the last word may continue after the end of the text."""
        if not _goes_on(self.all[-1]):
            return False
        if self._is_even:
            return self._folded.endswith(self.all[-1])
        between = self._text[self._spans[-1][1] :]
        return len(between) < _REACH and not any(map(_FOLDING.character, between))


class LeakDetector:
    """Finds the runs of a prompt, which all have the same number of words. The runs are sorted, so that a
    binary search finds whether the end of the text is the beginning of a run."""

    reach = _REACH

    def __init__(self, prompt: Iterable[str], min_words: int, allowed: Iterable[str] = ()) -> None:
        """`allowed`: passages in the form that `_plain` returns."""
        self._weight = 2 * min_words
        runs: set[str] = set()
        texts = [reading for text in prompt for reading in (text, LOOSE.read(text))]
        for plain in {_plain(form) for text in texts for form in forms(text)}:
            for run in allowed:
                while run in plain:
                    plain = plain.replace(run, " \n ")
            for part in plain.split("\n"):
                words = part.split()
                runs.update(" ".join([*words[first:end], ""]) for first, end in self._windows(words))
        self._known = runs
        self._sorted = [*sorted(runs), "\U0010ffff"]
        self._most = 2 * max(map(len, runs), default=0) + 64
        """Most characters of a leak, with everything between its words."""
        self.longest = self._most + _REACH if runs else 0

    def _windows(self, words: Sequence[str]) -> Iterable[tuple[int, int]]:
        """Return the runs of `words` that are just long enough to be a leak: of each, the index of its first
        word and the index after its last. Two characters of `WITHOUT_SPACES` weigh as one word."""
        if 2 * len(words) < self._weight:
            return ()
        if "".join(words).isascii():
            return zip(count(), range(self._weight // 2, len(words) + 1), strict=False)
        return self._weighed(words)

    def _weighed(self, words: Sequence[str]) -> Iterator[tuple[int, int]]:
        weights = list(map(_weight, words))
        end = weight = 0
        for first, without in enumerate(weights):
            while weight < self._weight:
                if end == len(words):
                    return
                weight += weights[end]
                end += 1
            yield first, end
            weight -= without

    def scan(self, text: str, start: int = 0, is_final: bool = True, taken: Sequence[Match] = ()) -> Findings:
        words = _Words(text, start)
        begun = int(words.begins_before())
        is_open = not is_final and begun < len(words.all) and words.may_go_on()
        said, indices = words.without_numbers(begun, len(words.all) - is_open)
        runs: list[tuple[int, int]] = []
        rest = 0
        for first, end in self._windows(said):
            rest = first + 1
            if " ".join([*said[first:end], ""]) in self._known:
                begin, stop = words.span(indices[first])[0], words.span(indices[end - 1])[1]
                if stop - begin <= self._most:
                    runs.append((begin, stop))
        matches = _leaks(runs, taken) if runs else []
        if is_final:
            return matches, len(text)
        for index in self._open_words(said[rest:], words.all[-1] if is_open else ""):
            begin = words.span(indices[rest + index])[0]
            if len(text) - begin < self.longest:
                return matches, begin
        return matches, len(text)

    def _open_words(self, words: Sequence[str], last: str) -> Iterator[int]:
        """Yield the indices of words from which the rest of the text is the beginning of a run. The word
        `last` follows `words` and may be incomplete; a number so far may be one that is ignored."""
        rest = " ".join([*words, last])
        is_number = _is_number(last)
        for index, word in enumerate(words):
            if self._has(rest) or (is_number and self._has(rest[: -len(last)])):
                yield index
            rest = rest[len(word) + 1 :]
        if last and self._has(last):
            yield len(words)

    def _has(self, beginning: str) -> bool:
        """Whether a run begins with this text."""
        return self._sorted[bisect_left(self._sorted, beginning)].startswith(beginning)


def _leaks(runs: Iterable[tuple[int, int]], taken: Sequence[Match]) -> list[Match]:
    """Return the leaks: runs that overlap are one. The last of `taken` comes again if it continues."""
    leaks = list(taken[-1:])
    for begin, stop in runs:
        if leaks and begin < leaks[-1].end:
            leaks[-1] = Match(leaks[-1].start, max(stop, leaks[-1].end), ENTITY)
        else:
            leaks.append(Match(begin, stop, ENTITY))
    return leaks[1:] if taken and leaks[0] == taken[-1] else leaks


def _goes_on_from_left(text: str, begin: int) -> bool:
    """Whether the character at `begin` belongs to a word that began before it."""
    for i in range(begin - 1, max(-1, begin - 1 - _REACH), -1):
        if piece := _FOLDING.character(text[i]):
            return _OF_WORD(piece[-1]) is not None
    return False
