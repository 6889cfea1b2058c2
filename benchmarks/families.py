"""The rules of the guards as data: guards of some of them, and values made from their patterns."""

import random
from collections.abc import Iterable, Iterator

from benchmarks.cases.strings import drawn, drawn_between
from hooks.builtin import pii
from hooks.builtin.pii import Pii
from hooks.builtin.pii_rules.accounts import iban_patterns
from hooks.builtin.pii_rules.national_ids import NATIONAL_IDS
from hooks.builtin.secret_rules.issuers import WORDED
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


def halves_and_all() -> Iterator[tuple[str, list[SpanGuard], SpanGuard]]:
    """Return `pii` and `secrets` with each half of their rules (every other one), and with all rules."""
    for name, guard in (("pii", every_entity()), ("secrets", Secrets())):
        yield name, [guard_of(rules_of(guard)[first::2], guard) for first in (0, 1)], guard


FORMS: dict[str, list[str]] = {
    "ISSUER_KEY": [form for forms in WORDED.values() for form in forms],
    "FR_INSEE": [r"[12]\d\d(?:0[1-9]|1[0-2])2[AB]\d{8}"],
    "IBAN_CODE": [rf"{country}\d\d{form}" for country, _, form in iban_patterns()],
    "CN_RIC": [r"(?:11|31|44)\d{4}19\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|1\d|2[0-8])\d{3}[\dX]"],
    "MX_CURP": [r"[A-Z]{4}\d\d(?:0\d|1[0-2])[0-2]\d[HMX](?:AS|DF|JC|NL|VZ)[A-Z]{3}[A-Z\d]\d"],
    "JWT": [
        r"eyJhbGciOiJIUzI1NiJ9(?:\.[A-Za-z\d_-]{20}){2}",
        r"eyJhbGciOiJkaXIifQ\.(?:\.[A-Za-z\d_-]{16}){3}",
    ],
}
"""For each entity, patterns that are narrower than those of its rules."""
for line in NATIONAL_IDS:
    FORMS.setdefault(line.entity, []).append(line.form)
_TRIES = 20_000


class Family:
    """A rule, and texts that it finds."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._detector = RuleDetector([rule])
        self._patterns = [rule.pattern, *FORMS.get(rule.entity, ())]

    def text(self, rng: random.Random) -> tuple[str, str, str]:
        """Return the text that must stand before a value, the value, and the text that must stand after it.
        Raises `ValueError` if nothing drawn is a find."""
        for _ in range(_TRIES):
            left, value, after = drawn_between(rng.choice(self._patterns), rng)
            if self._is_refused(value):
                continue
            before = self._before(rng)
            before += left.removeprefix(before[-1:])
            value += self._end(rng)
            matches, _ = self._detector.scan(f"{before}{value}{after or '.'}")
            if any(match.start == len(before) for match in matches):
                return before, value, after
        raise ValueError(f"no value of {self.rule.entity} was drawn")

    def _is_refused(self, value: str) -> bool:
        """Whether the rule's check refuses the value. It is cheaper than a search."""
        also = self.rule.also
        check = self.rule.check or self.rule.length
        return check is not None and not (check(value) or (also is not None and also.length(value)))

    def _before(self, rng: random.Random) -> str:
        near = f"{drawn(self.rule.near, rng)} " if self.rule.near else ""
        also = self.rule.also
        behind = also.behind if also is not None and rng.random() < 0.5 else self.rule.behind
        return near + (drawn(behind, rng) if behind else "")

    def _end(self, rng: random.Random) -> str:
        return drawn(self.rule.until, rng, lambda _: True) if self.rule.until else ""


def families(guard: SpanGuard) -> list[Family]:
    """Return the families of a guard."""
    return [Family(rule) for rule in rules_of(guard)]
