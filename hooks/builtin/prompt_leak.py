"""Passages of the request's system prompt in the model's output: `--hook prompt_leak`.

A leak is a run of `min_words` words that follow each other in the prompt. White space, punctuation, markup
and the differences that `folding` removes do not matter. Numbers of up to three digits, as in a list, are
ignored in the prompt and in the output. In scripts without spaces between words, two characters count as a
word. The model may repeat shorter passages of the prompt, or a whole prompt that is shorter.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Annotated, Any, Literal, NamedTuple, Unpack

from pydantic import Field

from hooks import Chunk, Verdict, checked, emit
from hooks.detect.acting_guard import Options
from hooks.detect.argument_types import Count
from hooks.detect.detector import Findings, Match
from hooks.detect.extras import from_extra
from hooks.detect.folding import WITHOUT_SPACES, Folding, forms
from hooks.detect.readings import LOOSE, Reader
from hooks.detect.span_guard import SpanGuard

with from_extra("guards", "regex"):
    import regex

ENTITY = "prompt_leak"
Role = Literal["system", "developer", "user", "assistant", "tool", "function"]
_REACH = 16
"""Most invisible characters in a row inside one word. A longer row ends the word."""
_CACHED = 32
"""Most prompts that are kept ready for later requests with the same prompt."""
_WORD = regex.compile(rf"[{WITHOUT_SPACES}]|[^\W_{WITHOUT_SPACES}]+")
_NUMBER = regex.compile(r"\d{1,3}").fullmatch
_GOES_ON = regex.compile(rf"[^\W_{WITHOUT_SPACES}]").match
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
        greeting. Each has at least `min_words` words: a shorter one is no leak.

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

    def __call__(self, chunk: Chunk) -> Verdict:
        guard: SpanGuard | None = chunk.state.get("guard")
        if guard is None:
            prompt = tuple(_texts(chunk.request.messages, self._roles))
            guard = chunk.state["guard"] = self._guard_for(prompt)
        return guard(chunk) if guard.detector.longest else emit(chunk.pending)

    def _made(self, prompt: tuple[str, ...]) -> SpanGuard:
        detector = LeakDetector(prompt, self._min_words, self._allowed)
        return SpanGuard(Reader(detector, LOOSE), **self._options)


def _texts(messages: Iterable[Mapping[str, Any]], roles: frozenset[str]) -> Iterator[str]:
    for message in messages:
        if message.get("role") in roles:
            content = message.get("content") or ""
            parts = [{"text": content}] if isinstance(content, str) else content
            yield "\n".join(part.get("text") or "" for part in parts)


def _plain(text: str) -> str:
    """Return the text's words, with a space before, between and after them."""
    folded = _FOLDING.plain(text)
    # If folding removed no characters, this faster way gives the same words.
    words = _WORD.findall(folded) if len(folded) == len(text) else [word for word, *_ in _words(text)]
    return f" {' '.join(word for word in words if not _NUMBER(word))} "


def _weight(word: str) -> int:
    """Return the word's weight, counted in half words."""
    return 2 if word.isascii() or _GOES_ON(word) else 1


class _Word(NamedTuple):
    folded: str
    begin: int
    end: int


def _words(text: str, start: int = 0) -> list[_Word]:
    """Return the words of `text[start:]`, with their places in `text`."""
    folded, origins = _FOLDING.fold(text[start:])
    words: list[_Word] = []
    for found in _WORD.finditer(folded):
        first, last = found.span()
        # More than `_REACH` invisible characters end a word.
        for i in range(first + 1, last) if isinstance(origins, list) else ():
            if origins[i] - origins[i - 1] > _REACH:
                words.append(_Word(folded[first:i], start + origins[first], start + origins[i - 1] + 1))
                first = i
        words.append(_Word(folded[first:last], start + origins[first], start + origins[last - 1] + 1))
    return words


class LeakDetector:
    """Finds the runs of a prompt, which all have the same number of words. The runs are sorted, so that a
    binary search tells whether the end of the text is the beginning of a run."""

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
                runs.update(run for _, _, run in self._runs(part.split()))
        self._known = runs
        self._sorted = sorted(runs)
        self._most = 2 * max(map(len, runs), default=0) + 64
        """Most characters of a leak, with everything between its words. A longer text is no leak."""
        self.longest = self._most + _REACH if runs else 0

    def _runs(self, words: Sequence[str]) -> Iterator[tuple[int, int, str]]:
        """Yield each run of `words` that is just long enough to be a leak: the index of its first word, the
        index after its last word, and its text. Two characters of `WITHOUT_SPACES` weigh as one word."""
        said = "".join(f"{word} " for word in words)
        places = list(accumulate((len(word) + 1 for word in words), initial=0))
        weights = list(map(_weight, words))
        end = weight = 0
        for first, without in enumerate(weights):
            while weight < self._weight:
                if end == len(words):
                    return
                weight += weights[end]
                end += 1
            yield first, end, said[places[first] : places[end]]
            weight -= without

    def scan(self, text: str, start: int = 0, is_final: bool = True, taken: Sequence[Match] = ()) -> Findings:
        words = _words(text, start)
        if words and _goes_on_from_left(text, words[0].begin) and _GOES_ON(words[0].folded):
            del words[0]
        is_open = not is_final and bool(words) and _may_go_on(text, words[-1])
        last = words.pop() if is_open else None
        complete = [word for word in words if not _NUMBER(word.folded)]
        matches: list[Match] = []
        rest = 0
        for first, end, run in self._runs([word.folded for word in complete]):
            rest = first + 1
            begin, stop = complete[first].begin, complete[end - 1].end
            if run in self._known and stop - begin <= self._most:
                matches.append(Match(begin, stop, ENTITY))
        if is_final:
            return matches, len(text)
        undecided = self._undecided(text, complete[rest:], last)
        return [match for match in matches if match.start < undecided], undecided

    def _undecided(self, text: str, words: Sequence[_Word], last: _Word | None) -> int:
        """Return the start of the first word from which the rest of the text is the beginning of a run. The
        word `last` follows `words` and may be incomplete."""
        said = "".join(f"{word.folded} " for word in words)
        rest = last.folded if last else ""
        place = 0
        for word in words:
            if len(text) - word.begin < self.longest and self._begins(said[place:], rest):
                return word.begin
            place += len(word.folded) + 1
        if last and len(text) - last.begin < self.longest and self._has(rest):
            return last.begin
        return len(text)

    def _begins(self, words: str, rest: str) -> bool:
        """Whether a run begins with `words` and any completion of `rest`; with `words` alone if `rest` is a
        number so far."""
        return self._has(words + rest) or (_NUMBER(rest) is not None and self._has(words))

    def _has(self, beginning: str) -> bool:
        """Whether a run begins with this text."""
        place = bisect_left(self._sorted, beginning)
        return place < len(self._sorted) and self._sorted[place].startswith(beginning)


def _goes_on_from_left(text: str, begin: int) -> bool:
    """Whether the character at `begin` belongs to a word that began before it."""
    for i in range(begin - 1, max(-1, begin - 1 - _REACH), -1):
        if piece := _FOLDING.character(text[i]):
            return _GOES_ON(piece[-1]) is not None
    return False


def _may_go_on(text: str, word: _Word) -> bool:
    """Whether the word may continue after the end of `text`."""
    between = text[word.end :]
    is_last = len(between) < _REACH and not any(map(_FOLDING.character, between))
    return is_last and _GOES_ON(word.folded[-1]) is not None
