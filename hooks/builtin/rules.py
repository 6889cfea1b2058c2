"""Rules: regular expressions, with what else must be true of a match. And the detector that goes by them."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import regex

from hooks.builtin.regexes import UNLIMITED, analyse
from hooks.builtin.spans import Match

NEAR = 64
"""How far to the left of a match, in characters, the words may stand that it needs."""


@dataclass(frozen=True)
class Rule:
    """A detector made of it raises `ValueError` if its matches have neither a bound nor `max_length`."""

    entity: str
    pattern: str
    check: Callable[[str], bool] | None = None
    """Whether the matched text is what it looks like."""
    near: str | None = None
    """A pattern that must be found in the `NEAR` characters before the match."""
    max_length: int | None = None
    """Characters that a match may have; needed where the pattern does not say."""


class RuleDetector:
    """Finds what rules say: for each, its leftmost matches that do not overlap, as `finditer` would."""

    def __init__(self, rules: Iterable[Rule], timeout: float | None = None) -> None:
        """`timeout`: seconds that one search may take before it raises `TimeoutError`."""
        self._searchers = [_Searcher(rule, i, timeout) for i, rule in enumerate(rules)]
        if not self._searchers:
            raise ValueError("there is nothing to look for")
        self.longest = max(searcher.longest for searcher in self._searchers)
        self.reach = max(searcher.reach for searcher in self._searchers)

    def scan(
        self, text: str, start: int = 0, is_final: bool = True, taken: Sequence[Match] = ()
    ) -> tuple[list[Match], int]:
        begins = {match.rule: match.end for match in taken}
        undecided = len(text)
        if not is_final:
            for i, searcher in enumerate(self._searchers):
                undecided = min(undecided, searcher.first_open(text, begins.get(i, start)))
                if undecided == start:
                    return [], start
        matches: list[Match] = []
        for i, searcher in enumerate(self._searchers):
            matches += searcher.matches(text, begins.get(i, start), undecided)
        return matches, undecided


class _Searcher:
    """One rule, made ready."""

    def __init__(self, rule: Rule, index: int, timeout: float | None) -> None:
        self._rule = rule
        self._index = index
        self._timeout = timeout
        analysis = analyse(rule.pattern)
        longest = min(analysis.longest, rule.max_length or UNLIMITED)
        if longest >= UNLIMITED:
            raise ValueError(
                f"a match of pattern {rule.pattern!r} has no bound: "
                "bound its repeats, as in {1,64}, or give max_length"
            )
        self._limit = longest if longest < analysis.longest else None
        self._pattern = regex.compile(rule.pattern)
        self._opened = regex.compile(analysis.opened)
        self._near = re.compile(rule.near, re.IGNORECASE) if rule.near else None
        self.longest = longest + (analysis.ahead if self._limit is None else -1)
        self.reach = max(analysis.behind, NEAR if rule.near else 0)

    def first_open(self, text: str, begin: int) -> int:
        """Where a match begins, or may, that depends on what follows `text`."""
        begin = max(begin, len(text) - self.longest)
        found = self._opened.search(text, begin, partial=True, timeout=self._timeout)
        return found.start() if found else len(text)

    def matches(self, text: str, begin: int, stop: int) -> Iterator[Match]:
        """Those that begin before `stop`."""
        while found := self._next(text, begin, stop):
            start, end = found.span()
            if end > start and self._is_wanted(found[0], text, start):
                yield Match(start, end, self._rule.entity, self._index)
                begin = end
            else:
                begin = start + 1

    def _next(self, text: str, begin: int, stop: int) -> "regex.Match[str] | None":
        if self._limit is None:
            found = self._pattern.search(text, begin, timeout=self._timeout)
            return found if found and found.start() < stop else None
        # A longer match is none: what follows the limit is as if it were not there.
        for i in range(begin, stop):
            if found := self._pattern.match(text, i, i + self._limit, timeout=self._timeout):
                return found
        return None

    def _is_wanted(self, matched: str, text: str, start: int) -> bool:
        if self._rule.check is not None and not self._rule.check(matched):
            return False
        return self._near is None or self._near.search(text, max(0, start - NEAR), start) is not None
