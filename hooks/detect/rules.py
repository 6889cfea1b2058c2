"""Rules: regular expressions with further conditions on a match, and the detector that uses them."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import NamedTuple

from hooks.api.extras import from_extra
from hooks.detect.automaton.regex_analysis import UNLIMITED, Find, analyse, finder
from hooks.detect.automaton.screen import RuleScreen
from hooks.detect.automaton.states import Automaton, Place, Sketch, numbers
from hooks.detect.automaton.tree import literals_of, tree_of
from hooks.detect.detector import Findings, Match, Screenable

with from_extra("guards", "regex"):
    import regex
with from_extra("guards", "pyahocorasick"):
    import ahocorasick

NEAR = 64
"""Most characters to the left of a match in which its required words may be."""
_LONG = 24
"""Undecided characters from which on the last open rule is tried before the automaton reads them all."""
_SEARCHED = 8
"""Characters that a search passes in the time of one match at a place."""
_NONE: Mapping[int, int] = {}
BEGIN = r"(?<![^\W_])(?<!\d[-./])"
END = r"(?![^\W_])(?![-./]\d)"
"""Patterns around a text that is not part of a longer word or number."""


def words(*alternatives: str) -> str:
    """Return a pattern for `Rule.near`: any of `alternatives`, as whole words."""
    return rf"(?<![^\W_])(?:{'|'.join(alternatives)})(?![^\W_])"


class Also(NamedTuple):
    """A second `Rule.length`, for matches directly after a pattern."""

    behind: str
    """The pattern. `Rule.behind` matches all that it matches."""
    length: Callable[[str], int]


@dataclass(frozen=True)
class Rule:
    """A pattern and its conditions. Detectors raise `ValueError` if its matches have no bound."""

    entity: str
    pattern: str
    check: Callable[[str], bool] | None = None
    """Returns whether the matched text is really the entity."""
    length: Callable[[str], int] | None = None
    """Returns how many of the first characters of the matched text are the entity; 0: none."""
    also: Also | None = None
    """Asked if `length` returns 0."""
    near: str | None = None
    """A pattern that must be found in the `NEAR` characters before the match, in lower case."""
    behind: str | None = None
    """A pattern that must come directly before the match."""
    unless: str | None = None
    """A pattern that must not come directly before the match."""
    max_length: int | None = None
    """Most characters of a match; required if the pattern has no bound."""
    until: str | None = None
    """A pattern that ends a match at any distance; if it is not found, the match ends with the text."""
    country: str = ""
    """The country (ISO 3166 code, in upper case) whose data this is; empty: of no country."""


def chosen(rules: list[Rule], entities: Iterable[str] | None) -> list[Rule]:
    """Return the rules of `entities`; None: all. Raises `ValueError` for an entity that no rule has."""
    if entities is None:
        return rules
    known = dict.fromkeys(rule.entity for rule in rules)
    wanted = set(entities)
    if unknown := wanted - known.keys():
        raise ValueError(f"entities are some of {', '.join(known)}, not {', '.join(sorted(unknown))}")
    return [rule for rule in rules if rule.entity in wanted]


class Allowed:
    """The texts that are no finds, whatever rules say: given texts, without regard to case, and patterns."""

    def __init__(self, allow: Iterable[str]) -> None:
        """`allow`: texts, and patterns between slashes as `/EXAMPLE$/`, which a match must contain. Raises
        `ValueError` for a pattern that is invalid."""
        given = list(allow)
        patterns = [one[1:-1] for one in given if len(one) > 2 and one[0] == one[-1] == "/"]
        self._texts = {one.casefold() for one in given}
        try:
            self._search = (
                regex.compile("|".join(f"(?:{one})" for one in patterns)).search if patterns else None
            )
        except regex.error as error:
            raise ValueError(f"allow: {error}") from error

    def __contains__(self, text: str) -> bool:
        return text.casefold() in self._texts or bool(self._search and self._search(text))


class RuleDetector(Screenable):
    """Finds the matches of rules: for each rule the leftmost ones that do not overlap, as `finditer` does.

    One automaton reads the text for all rules, and finds where each of them may match. The rule's own pattern
    is searched only there.
    """

    def __init__(
        self, rules: Iterable[Rule], timeout: float | None = None, *, allow: Iterable[str] = ()
    ) -> None:
        """`timeout`: seconds that one search may take before it raises `TimeoutError`. `allow`: see
        `Allowed`."""
        allowed = Allowed(allow) if allow else None
        searchers = [_Searcher(rule, i, timeout, allowed) for i, rule in enumerate(rules)]
        if not searchers:
            raise ValueError("there is nothing to look for")
        sketches = [searcher.sketch for searcher in searchers]
        self._searchers = searchers
        self._everywhere = [one for one, sketch in zip(searchers, sketches, strict=True) if sketch is None]
        words = [
            searcher.words if sketch else () for searcher, sketch in zip(searchers, sketches, strict=True)
        ]
        needing: dict[str, int] = {}
        for i, needed in enumerate(words):
            for word in needed:
                needing[word] = needing.get(word, 0) | 1 << i
        self._automaton = Automaton(
            [None if needed else one for needed, one in zip(words, sketches, strict=True)]
        )
        # These rules match only near their words. So the automaton does not check the text before a match,
        # which would multiply its states.
        self._worded = Automaton(
            [
                one and one._replace(behind=None) if needed else None
                for needed, one in zip(words, sketches, strict=True)
            ]
        )
        """The automaton of the rules that need a word near."""
        self._near_words = _NearWords(needing) if needing else None
        self._words_first = True
        """Whether a text is searched for the words first, and then for the matches of their rules. The search
        that last found nothing goes first: if it finds nothing again, the other one is left out."""
        self.longest = max(searcher.longest for searcher in searchers)
        self.reach = max(searcher.reach for searcher in searchers)
        self._likely: _Searcher | None = None
        """The rule that left the last text undecided. It often does so again; then no other rule matters."""

    def screen(self) -> RuleScreen | None:
        """Return the screen of these rules; None: a rule has no sketch, or may match no character."""
        sketches = [sketch for searcher in self._searchers if (sketch := searcher.sketch) and sketch.shortest]
        return RuleScreen(sketches) if len(sketches) == len(self._searchers) else None

    def is_worded(self, match: Match) -> bool:
        rule = self._searchers[match.rule].rule
        return bool(rule.near or rule.behind) and not rule.until

    def scan(self, text: str, start: int = 0, is_final: bool = True, taken: Sequence[Match] = ()) -> Findings:
        likely = self._likely if len(text) - start > _LONG and not (is_final or taken) else None
        if likely is not None and likely.is_open(text, start):
            return [], start
        matches: list[Match] = []
        ends = _NONE
        if taken:
            grown = [self._searchers[match.rule].grown(text, match) for match in taken]
            ends = {match.rule: match.end for match in grown}
            matches = [match for match, known in zip(grown, taken, strict=True) if match.end > known.end]
        places: Sequence[Place] = self._automaton.places(text, start)
        if self._near_words is not None:
            if self._words_first:
                if near := self._near_words.rows(text, start):
                    worded = self._worded.places(text, start)
                    self._words_first = bool(worded)
                    places = _merged(places, worded, near, start)
            elif worded := self._worded.places(text, start):
                near = self._near_words.rows(text, start)
                self._words_first = not near
                places = _merged(places, worded, near, start)
        if not (places or taken or self._everywhere):
            return [], len(text)
        undecided = len(text) if is_final else self._first_open(text, start, places, ends)
        if undecided == start and not is_final:
            return [], start
        for searcher in self._everywhere:
            matches += searcher.found(text, max(start, ends.get(searcher.index, 0)), undecided)
        for rule, candidates in _by_rule(places, undecided).items():
            matches += self._searchers[rule].found_at(text, candidates, ends.get(rule, 0))
        return matches, undecided

    def _first_open(self, text: str, start: int, places: Sequence[Place], ends: Mapping[int, int]) -> int:
        """Return the first place at which more text could make or change a match."""
        undecided = len(text)
        for searcher in self._everywhere:
            undecided = min(undecided, searcher.first_open(text, max(start, ends.get(searcher.index, 0))))
        for place, may_open, _ in places:
            if place >= undecided:
                break
            for rule in numbers(may_open):
                searcher = self._searchers[rule]
                if place >= ends.get(rule, 0) and searcher.is_open(text, place):
                    self._likely = searcher
                    return place
        return undecided


def _merged(
    places: Sequence[Place], worded: Sequence[Place], near: Sequence[int], start: int
) -> Sequence[Place]:
    """Return the places of both, from left to right; of `worded` those of rules with a word near. `near`: see
    `_NearWords.rows`."""
    if not (near and worded):
        return places
    left = max(0, start - NEAR)
    more = [
        (place, may_open & shown, may_be & shown)
        for place, may_open, may_be in worded
        if (may_open | may_be) & (shown := near[(place - left) // NEAR])
    ]
    return sorted([*places, *more]) if places and more else places or more


def _by_rule(places: Sequence[Place], stop: int) -> dict[int, list[int]]:
    """Return for each rule the places before `stop` where it may match, from left to right."""
    alike: dict[int, list[int]] = {}
    for place, _, may_be in places:
        if place >= stop:
            break
        if may_be:
            alike.setdefault(may_be, []).append(place)
    found: dict[int, list[int]] = {}
    for may_be, same in alike.items():
        for rule in numbers(may_be):
            found.setdefault(rule, []).extend(same)
    for candidates in found.values():
        candidates.sort()
    return found


class _NearWords:
    """The words that rules need near a match, and their places in a text."""

    def __init__(self, rules_of_words: Mapping[str, int]) -> None:
        """`rules_of_words`: for each word, in lower case, the rules that need it or another, as bits."""
        self._automaton = ahocorasick.Automaton()
        for word, rules in rules_of_words.items():
            self._automaton.add_word(word, rules)
        self._automaton.make_automaton()
        self._all = reduce(or_, rules_of_words.values(), 0)

    def rows(self, text: str, start: int) -> Sequence[int]:
        """Return the rules that may have a word near, as bits, for each row of `NEAR` places from
        `start - NEAR` on; nothing if there is no word."""
        left = max(0, start - NEAR)
        lower = text[left:].lower()
        num_rows = (len(text) - left) // NEAR + 2
        if len(lower) != len(text) - left:
            return [self._all] * num_rows
        rows: list[int] = []
        for last, rules in self._automaton.iter(lower):
            rows = rows or [0] * num_rows
            row = (last + 1) // NEAR
            rows[row] |= rules
            rows[row + 1] |= rules
        return rows


class _Searcher:
    """One rule with its compiled patterns."""

    def __init__(self, rule: Rule, index: int, timeout: float | None, allowed: Allowed | None = None) -> None:
        self.rule = rule
        self._allowed = allowed
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
        self._shortest = analysis.shortest
        match = finder(rule.pattern, timeout, is_fixed=True)
        # A longer match ends at the limit, as if the text ended there.
        self._match_at: Find = (lambda text, at: match(text, at, at + longest)) if self._limit else match
        self._find = finder(rule.pattern, timeout)
        self._find_open = finder(analysis.opened, timeout, partial=True)
        self._match_open = finder(analysis.opened, timeout, partial=True, is_fixed=True)
        self._near = re.compile(rule.near).search if rule.near else None
        near = tree_of(rule.near) if rule.near else None
        words = literals_of(near) if near is not None else ()
        self.words = words if all(words) else ()
        """Texts in lower case. One of them is in the `NEAR` characters before each match; empty: unknown."""
        # Apart from the pattern: partial matching reports a look-behind with alternatives as an open match.
        sides = [f"(?<={rule.behind})"] * bool(rule.behind) + [f"(?<!{rule.unless})"] * bool(rule.unless)
        self._sides = finder(f"(?i){''.join(sides)}", timeout, is_fixed=True) if sides else None
        also = rule.also
        self._also = finder(f"(?i)(?<={also.behind})", timeout, is_fixed=True) if also else None
        self.longest = longest + (analysis.ahead if self._limit is None else -1)
        self._is_conditional = bool(self._near or self._sides)
        self._until = finder(rule.until, timeout) if rule.until else None
        others = [analyse(pattern or "") for pattern in (rule.until, rule.behind, rule.unless)]
        self._closing = others[0].longest
        self.reach = max(analysis.behind, NEAR + 2, *(one.longest + one.behind for one in others))

    @property
    def sketch(self) -> Sketch | None:
        """The facts about the rule that an automaton may know; None: the pattern has no tree."""
        tree = tree_of(self.rule.pattern)
        if tree is None:
            return None
        behind = tree_of(f"(?i){self.rule.behind}") if self.rule.behind else None
        return Sketch(tree, behind, self.reach, is_cut=self._limit is not None, shortest=self._shortest)

    def first_open(self, text: str, begin: int) -> int:
        """Return the first place of a possible match that depends on the text after `text`."""
        begin = max(begin, len(text) - self.longest)
        while (found := self._find_open(text, begin)) and (start := found.start()) < len(text):
            if self._fits(text, start):
                return int(start)
            begin = start + 1
        return len(text)

    def is_open(self, text: str, place: int) -> bool:
        """Whether a possible match at `place` depends on the text after `text`."""
        if len(text) - place > self.longest or (self._is_conditional and not self._fits(text, place)):
            return False
        return self._match_open(text, place) is not None

    def found_at(self, text: str, places: Sequence[int], begin: int) -> Iterator[Match]:
        """Yield the matches from `begin` on. `places`: where the rule may match, from left to right."""
        if len(places) * _SEARCHED < places[-1] - places[0] + _SEARCHED**2:
            for place in places:
                if place >= begin and (found := self._match_at(text, place)):
                    match = self._checked(found, text)
                    if match is not None:
                        yield match
                        begin = match.end
        else:
            # No match at the last place depends on the text after this end.
            end = min(len(text), places[-1] + self.longest + 2)
            yield from self.found(text, max(begin, places[0]), places[-1] + 1, end)

    def found(self, text: str, begin: int, stop: int, end: int | None = None) -> Iterator[Match]:
        """Yield the matches from `begin` on that begin before `stop`. `end`: they do not read further."""
        while (found := self._first(text, begin, stop, end)) is not None and found.start() < stop:
            match = self._checked(found, text)
            if match is not None:
                yield match
            begin = match.end if match is not None else found.start() + 1

    def _first(self, text: str, begin: int, stop: int, end: int | None) -> "regex.Match[str] | None":
        """Find the first match of the pattern from `begin` on, if there is one before `stop`."""
        return self._find(text, begin, end) if self._limit is None else self._find_within(text, begin, stop)

    def grown(self, text: str, match: Match) -> Match:
        """Return the match with its end in the text known now."""
        if self._until is None:
            return match
        closing = self._until(text, max(0, match.start, match.end - self._closing))
        return match._replace(end=closing.end() if closing else len(text))

    def _find_within(self, text: str, begin: int, stop: int) -> "regex.Match[str] | None":
        """Find the first match of at most `self._limit` characters."""
        tries = (self._match_at(text, place) for place in range(begin, stop))
        return next(filter(None, tries), None)

    def _fits(self, text: str, start: int) -> bool:
        """Whether the text before `start` satisfies the rule's conditions."""
        if self._sides is not None and self._sides(text, start) is None:
            return False
        return self._near is None or self._near(text[max(0, start - NEAR) : start].lower()) is not None

    def _checked(self, found: "regex.Match[str]", text: str) -> Match | None:
        """Return the rule's entity in what its pattern found; None: the rule's conditions do not hold."""
        start, matched = found.start(), found[0]
        if not self._fits(text, start) or (self.rule.check is not None and not self.rule.check(matched)):
            return None
        length = self._length(text, start, matched)
        if not length or (self._allowed is not None and matched[:length] in self._allowed):
            return None
        return self.grown(text, Match(start, start + length, self.rule.entity, self.index))

    def _length(self, text: str, start: int, matched: str) -> int:
        """Return how many of the first characters of `matched` are the entity; 0: none."""
        if self.rule.length is None:
            return len(matched)
        length = self.rule.length(matched)
        also = self.rule.also
        if length or also is None or self._also is None:
            return length
        length = also.length(matched)
        return length if length and self._also(text, start) else 0
