"""Rules: regular expressions with further conditions on a match, and the detector that uses them."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from hooks.detect.detector import Findings, Match
from hooks.detect.extras import from_extra
from hooks.detect.regex_analysis import UNLIMITED, analyse, finder

with from_extra("guards", "regex"):
    import regex

NEAR = 64
"""Most characters to the left of a match in which its required words may be."""
BEGIN = r"(?<![^\W_])(?<!\d[-./])"
END = r"(?![^\W_])(?![-./]\d)"
"""Patterns around a text that is no part of a longer word or number."""
SIX_DIGITS = r"(?:\+|\()?[ .\-/()\u00a0\u2010\u2011]{0,3}\d(?:[ .\-/()\u00a0\u2010\u2011]{0,3}\d){5}"
LETTERED = r"(?<![^\W_])[A-Za-z]{1,6}[ -]?\d"
"""The beginnings of the numbers of persons, accounts and phones: see `Rule.begins`."""


def words(*alternatives: str) -> str:
    """Return a pattern for `Rule.near`: any of `alternatives`, as whole words."""
    return rf"(?<![^\W_])(?:{'|'.join(alternatives)})(?![^\W_])"


@dataclass(frozen=True)
class Rule:
    """A pattern and its conditions. Detectors raise `ValueError` if its matches have no bound."""

    entity: str
    pattern: str
    check: Callable[[str], bool] | None = None
    """Tells whether the matched text is really the entity."""
    length: Callable[[str], int] | None = None
    """Returns how many of the first characters of the matched text are the entity; 0: none."""
    near: str | None = None
    """A pattern that must be found in the `NEAR` characters before the match, in lower case."""
    behind: str | None = None
    """A pattern that must stand directly before the match."""
    unless: str | None = None
    """A pattern that must not stand directly before the match."""
    max_length: int | None = None
    """Most characters of a match; required if the pattern has no bound."""
    until: str | None = None
    """A pattern that ends a match at any distance; if it is not found, the match ends with the text."""
    begins: str = ""
    """A pattern that begins every match. Rules with the same `begins` are searched only from such a place."""


def chosen(rules: list[Rule], entities: Iterable[str] | None) -> list[Rule]:
    """Return the rules of `entities`; None: all. Raises `ValueError` for an entity that no rule has."""
    if entities is None:
        return rules
    known = dict.fromkeys(rule.entity for rule in rules)
    wanted = set(entities)
    if unknown := wanted - known.keys():
        raise ValueError(f"entities are some of {', '.join(known)}, not {', '.join(sorted(unknown))}")
    return [rule for rule in rules if rule.entity in wanted]


class RuleDetector:
    """Finds the matches of rules: for each rule the leftmost ones that do not overlap, as `finditer` does."""

    def __init__(self, rules: Iterable[Rule], timeout: float | None = None) -> None:
        """`timeout`: seconds that one search may take before it raises `TimeoutError`."""
        searchers = [_Searcher(rule, i, timeout) for i, rule in enumerate(rules)]
        if not searchers:
            raise ValueError("there is nothing to look for")
        self._searchers = searchers
        self.longest = max(searcher.longest for searcher in searchers)
        self.reach = max(searcher.reach for searcher in searchers)
        groups: dict[str, list[_Searcher]] = {}
        for searcher in searchers:
            groups.setdefault(searcher.rule.begins, []).append(searcher)
        self._likely: _Searcher | None = None
        """The rule that last left a text undecided. It often does so again; then no other rule matters."""
        self._groups = [(_Gate(begins, timeout), group) for begins, group in groups.items()]

    def scan(self, text: str, start: int = 0, is_final: bool = True, taken: Sequence[Match] = ()) -> Findings:
        grown = [self._searchers[match.rule].grown(text, match) for match in taken]
        ends = {match.rule: match.end for match in grown}
        likely = None if is_final or taken else self._likely
        if likely is not None and likely.first_open(text, start) == start:
            return [], start
        undecided = len(text)
        active: list[tuple[_Searcher, int]] = []
        for gate, group in self._groups:
            begin = gate.first(text, start, is_final)
            if begin == len(text):
                continue
            for searcher in group:
                from_here = max(begin, ends.get(searcher.index, 0)) if ends else begin
                active.append((searcher, from_here))
                if is_final:
                    continue
                undecided = min(undecided, searcher.first_open(text, from_here))
                if undecided == start:
                    self._likely = searcher if gate.is_open else None
                    return [], start
        matches = [match for match, known in zip(grown, taken, strict=True) if match.end > known.end]
        for searcher, begin in active:
            if begin < undecided:
                matches += searcher.matches(text, begin, undecided)
        return matches, undecided


class _Gate:
    """Finds the first place where the rules with the same `begins` can match."""

    def __init__(self, begins: str, timeout: float | None) -> None:
        self.is_open = not begins
        self._find = finder(begins, timeout)
        self._find_open = finder(analyse(begins).opened, timeout, partial=True)

    def first(self, text: str, start: int, is_final: bool) -> int:
        if self.is_open:
            return start
        found = self._find(text, start)
        place: int = found.start() if found else len(text)
        if not is_final and place > start and (found := self._find_open(text, start)):
            place = min(place, found.start())
        return place


class _Searcher:
    """One rule with its compiled patterns."""

    def __init__(self, rule: Rule, index: int, timeout: float | None) -> None:
        self.rule = rule
        self.index = index
        analysis = analyse(rule.pattern)
        longest = min(analysis.longest, rule.max_length or UNLIMITED)
        a_match = f"a match of pattern {rule.pattern!r}"
        if longest >= UNLIMITED:
            raise ValueError(f"{a_match} has no bound: bound its repeats, as in {{1,64}}, or give max_length")
        if analysis.shortest > longest:
            raise ValueError(f"max_length: {a_match} has {analysis.shortest} characters or more")
        if not longest:
            raise ValueError(f"{a_match} has no character")
        self._limit = longest if longest < analysis.longest else None
        self._match = partial(regex.compile(rule.pattern).match, timeout=timeout)
        self._find = finder(rule.pattern, timeout)
        self._find_open = finder(analysis.opened, timeout, partial=True)
        self._match_open = partial(regex.compile(analysis.opened).match, partial=True, timeout=timeout)
        self._near = rule.near and re.compile(rule.near)
        # Apart from the pattern: partial matching reports a look-behind with alternatives as an open match.
        sides = [f"(?<={rule.behind})"] * bool(rule.behind) + [f"(?<!{rule.unless})"] * bool(rule.unless)
        self._sides = regex.compile("".join(sides), regex.IGNORECASE).match
        self.longest = longest + (analysis.ahead if self._limit is None else -1)
        self._until = regex.compile(rule.until).search if rule.until else None
        besides = [analyse(pattern or "") for pattern in (rule.until, rule.behind, rule.unless)]
        self._closing = besides[0].longest
        self.reach = max(analysis.behind, NEAR + 2, *(one.longest + one.behind for one in besides))

    def first_open(self, text: str, begin: int) -> int:
        """Return the first place of a possible match that depends on the text after `text`."""
        begin = max(begin, len(text) - self.longest)
        # The last open place is mostly open again, and a search would read the whole text first.
        if self._match_open(text, begin) and self._fits(text, begin):
            return begin
        while (found := self._find_open(text, begin)) and (start := found.start()) < len(text):
            if self._fits(text, start):
                return int(start)
            begin = start + 1
        return len(text)

    def matches(self, text: str, begin: int, stop: int) -> Iterator[Match]:
        """Yield the matches that begin before `stop`."""
        find = self._find
        if self._limit is not None:
            find = partial(self._find_within, stop=stop, limit=self._limit)
        while (found := find(text, begin)) and (start := found.start()) < stop:
            length = self._length(found[0], text, start)
            if length:
                match = self.grown(text, Match(start, start + length, self.rule.entity, self.index))
                yield match
                begin = match.end
            else:
                begin = start + 1

    def grown(self, text: str, match: Match) -> Match:
        """Return the match with its end in the text known now."""
        if self._until is None:
            return match
        closing = self._until(text, max(0, match.start, match.end - self._closing))
        return match._replace(end=closing.end() if closing else len(text))

    def _find_within(self, text: str, begin: int, stop: int, limit: int) -> "regex.Match[str] | None":
        """Find the first match of at most `limit` characters, as if the text ended there."""
        tries = (self._match(text, i, i + limit) for i in range(begin, stop))
        return next(filter(None, tries), None)

    def _fits(self, text: str, start: int) -> bool:
        """Whether the text before `start` satisfies the rule's conditions."""
        if self._near and not self._near.search(text[max(0, start - NEAR) : start].lower()):
            return False
        return self._sides(text, start) is not None

    def _length(self, matched: str, text: str, start: int) -> int:
        """Return how many of the matched characters at `start` are the rule's entity."""
        if not self._fits(text, start) or (self.rule.check is not None and not self.rule.check(matched)):
            return 0
        return len(matched) if self.rule.length is None else self.rule.length(matched)
