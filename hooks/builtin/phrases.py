"""A list of phrases that no answer may contain: `--hook phrases`, with `args: {phrases: [...]}`.

One automaton looks for all phrases at once. It searches the folded text (see `folding`), and the text without
escapes, tags and emphasis (see `readings`). The guard cuts a match out of the original text.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Unpack

from hooks import checked
from hooks.api.extras import from_extra
from hooks.detect.argument_types import blamed_on
from hooks.detect.detector import Findings, Match, Screenable
from hooks.detect.folding import FOLDS, WITHOUT_SPACES, Fold, Folding, forms
from hooks.detect.phrase_screen import PhraseScreen
from hooks.detect.readings import MARKUP, Reader
from hooks.detect.span_guard import SpanGuard, SpanOptions

with from_extra("guards", "pyahocorasick"):
    import ahocorasick

ENTITY = "phrase"
_REACH = 16
"""Most invisible characters and underscores in a row inside one word. A longer row ends the word."""
_OF_WORD = re.compile(rf"[^\W{WITHOUT_SPACES}]")


class Phrases(SpanGuard):
    """Finds phrases of a list, whatever their case, markup and look-alike letters."""

    thread_safe = True

    @checked
    def __init__(
        self,
        phrases: Sequence[str] = (),
        *,
        file: str | Path | None = None,
        word_boundaries: bool = True,
        fold: Sequence[Fold] = FOLDS,
        **options: Unpack[SpanOptions],
    ) -> None:
        """`phrases`: the phrases. `file`: a file with more of them, one a line (UTF-8). `word_boundaries`:
        ignore a phrase within a longer word. `fold`: the differences to ignore, some of `folding.FOLDS`.

        Raises `ValueError` if there are no phrases, or if folding leaves nothing of a phrase.
        """
        with blamed_on("file"):
            read = (
                Path(file).expanduser().read_text(encoding="utf-8").splitlines() if file is not None else []
            )
        wanted = [*phrases, *filter(str.strip, read)]
        detector = PhraseDetector(wanted, word_boundaries, fold)
        super().__init__(Reader(detector, MARKUP), **options)


class PhraseDetector(Screenable):
    """Finds every occurrence of every phrase."""

    reach = _REACH

    def __init__(
        self, phrases: Iterable[str], word_boundaries: bool = True, fold: Iterable[Fold] = FOLDS
    ) -> None:
        self._folding = Folding(fold)
        self._is_bounded = word_boundaries
        folded = sorted({self._folded(form) for phrase in phrases for form in forms(phrase)})
        if not folded:
            raise ValueError("phrases: the list is empty")
        self._automaton = ahocorasick.Automaton()
        for phrase, following in zip(folded, [*folded[1:], ""], strict=True):
            # The list is sorted: a longer phrase that begins with a phrase follows it directly.
            self._automaton.add_word(phrase, (len(phrase), following.startswith(phrase)))
        self._automaton.make_automaton()
        self._beginning = _beginning({phrase[0] for phrase in folded}, word_boundaries).search
        self._folded_phrases = folded
        self._fewest_folded = min(map(len, folded))
        self._most_folded = max(map(len, folded))
        self._most = 2 * self._most_folded + 64
        """Most characters of a match, with the characters that folding removes."""
        self.longest = self._most + _REACH

    def _folded(self, phrase: str) -> str:
        folded = self._folding.fold(phrase)[0].strip()
        if not folded:
            raise ValueError(f"phrases: nothing is left of {phrase!r} when it is folded")
        return folded

    def screen(self) -> PhraseScreen:
        return PhraseScreen(
            self._folded_phrases,
            self._folding.character,
            self._continues_word,
            joins_spaces=self._folding.joins_spaces,
        )

    def _continues_word(self, folded: str) -> bool:
        return self._is_bounded and _OF_WORD.match(folded) is not None

    def scan(self, text: str, start: int = 0, is_final: bool = True, taken: Sequence[Match] = ()) -> Findings:
        if not is_final and (place := self._undecided_alone(text, start)) is not None:
            return [], place
        folded, origins = self._folding.fold(text[start:])
        matches: list[Match] = []
        complete: set[int] = set()
        open_from = len(text)
        for last, (length, goes_on) in self._automaton.iter(folded):
            first = last + 1 - length
            begin, end = start + origins[first], start + origins[last] + 1
            if end - begin > self._most or self._is_joined_left(text, begin, folded[first]):
                continue
            is_joined = self._is_joined_right(text, end, folded[last], is_final)
            if is_joined is None:
                open_from = min(open_from, begin)
            elif not is_joined:
                matches.append(Match(begin, end, ENTITY))
                if not goes_on:
                    complete.add(first)
        if is_final:
            return matches, len(text)
        undecided = min(open_from, self._undecided(text, start, folded, origins, complete))
        return [match for match in matches if match.start < undecided], undecided

    def _undecided_alone(self, text: str, start: int) -> int | None:
        """Return the undecided place of a text in which each character folds to one and no phrase is whole;
        None if the text may not be so. Most chunks are decided here."""
        rest = folded = self._folding.evenly(text[start:])
        if folded is None or len(folded) > self._most:
            return None
        automaton = self._automaton
        place = 0
        while rest:
            length = automaton.longest_prefix(rest)
            if length >= self._fewest_folded and (length < len(rest) or rest in automaton):
                if next(automaton.iter(folded), None):
                    return None
            elif length == len(rest):
                begin = start + place
                if begin == 0 or text[begin - 1] == " " or not self._is_joined_left(text, begin, rest[0]):
                    return begin
            if (found := self._beginning(folded, place + 1)) is None:
                break
            place = found.start()
            rest = folded[place:]
        return len(text)

    def _undecided(
        self, text: str, start: int, folded: str, origins: Sequence[int], complete: set[int]
    ) -> int:
        """Return where the longest end of the text starts that is the beginning of a phrase."""
        for i in range(max(0, len(folded) - self._most_folded), len(folded)):
            if i not in complete and self._automaton.match(folded[i:]):
                begin = start + origins[i]
                if len(text) - begin < self.longest and not self._is_joined_left(text, begin, folded[i]):
                    return begin
        return len(text)

    def _is_joined_left(self, text: str, begin: int, first: str) -> bool:
        """Whether the character `first` at `begin` continues a word."""
        if begin == 0 or not self._is_bounded or text[begin - 1].isspace() or not _OF_WORD.match(first):
            return False
        for i in range(begin - 1, max(-1, begin - 1 - _REACH), -1):
            if piece := self._between(text[i]):
                return _OF_WORD.match(piece[-1]) is not None
        return False

    def _is_joined_right(self, text: str, end: int, last: str, is_final: bool) -> bool | None:
        """Whether the word that ends in `last` continues at `end`; None: the text ends too soon."""
        if not self._is_bounded or not _OF_WORD.match(last):
            return False
        for char in text[end : end + _REACH]:
            if piece := self._between(char):
                return _OF_WORD.match(piece) is not None
        return False if is_final or len(text) >= end + _REACH else None

    def _between(self, char: str) -> str:
        """Return the folded character next to a word, '' for none or for `_`, which may be emphasis."""
        return "" if char == "_" else self._folding.character(char)


def _beginning(firsts: set[str], is_bounded: bool) -> re.Pattern[str]:
    """Return a pattern of the places in folded text at which a phrase may begin, if `firsts` are the phrases'
    first characters. With `is_bounded`, no letter comes before a word; a `_` may be emphasis."""
    within = {char for char in firsts if is_bounded and _OF_WORD.match(char)}
    patterns = {"": firsts - within, rf"(?<![^\W_{WITHOUT_SPACES}])": within}
    return re.compile("|".join(f"{before}[{_escaped(chars)}]" for before, chars in patterns.items() if chars))


def _escaped(chars: Iterable[str]) -> str:
    return "".join(map(re.escape, sorted(chars)))
