"""The rules of the guards as data: guards of some of them, and values made from their patterns."""

import random
from collections.abc import Iterable, Iterator

from benchmarks.cases.strings import drawn
from hooks.builtin import pii
from hooks.builtin.pii import Pii
from hooks.builtin.secrets import Secrets
from hooks.detect.readings import Reader
from hooks.detect.rules import Rule, RuleDetector
from hooks.detect.span_guard import SpanGuard


def every_entity() -> Pii:
    """The guard `pii` with all entities that it knows, also those that it finds only if they are named."""
    return Pii(entities=sorted(getattr(pii, "ENTITIES", ())) or None)


def rules_of(guard: SpanGuard) -> list[Rule]:
    """Return the rules of a guard whose detector reads texts and finds by rules."""
    detector = guard.detector
    while isinstance(detector, Reader):
        detector = detector._detector
    assert isinstance(detector, RuleDetector)
    return [searcher.rule for searcher in detector._searchers]


def guard_of(rules: Iterable[Rule], like: SpanGuard) -> SpanGuard:
    """Return a guard of these rules that reads texts as `like` does."""
    assert isinstance(like.detector, Reader)
    return SpanGuard(Reader(RuleDetector(rules), like.detector._reading))


def half_and_all() -> Iterator[tuple[str, SpanGuard, SpanGuard]]:
    """Return `pii` and `secrets` with every other rule and with all rules."""
    for name, guard in (("pii", every_entity()), ("secrets", Secrets())):
        yield name, guard_of(rules_of(guard)[::2], guard), guard


_TRIES = 600


class Family:
    """A rule, and texts that it finds: words that must stand before a value, and the value."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._detector = RuleDetector([rule])

    def text(self, rng: random.Random) -> tuple[str, str]:
        """Return a text before a value, and the value. Raises `ValueError` if nothing drawn is a find."""
        for _ in range(_TRIES):
            before = f"{drawn(self.rule.near, rng)} " if self.rule.near else ""
            before += drawn(self.rule.behind, rng) if self.rule.behind else ""
            value = drawn(self.rule.pattern, rng)
            matches, _ = self._detector.scan(f"{before}{value}.")
            if any(match.start == len(before) for match in matches):
                return before, value
        raise ValueError(f"no value of {self.rule.entity} was drawn")


def families(guard: SpanGuard) -> list[Family]:
    """Return the families of a guard from which a value can be drawn."""
    made: list[Family] = []
    for rule in rules_of(guard):
        family = Family(rule)
        try:
            family.text(random.Random(1))
        except (ValueError, IndexError):
            continue
        made.append(family)
    return made
