"""Personal data: addresses, phone numbers, cards, accounts and national ids: `--hook pii`.

Entities have Presidio's names. A number that has check digits is a match only if they are right.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Unpack

from hooks import checked
from hooks.builtin.pii_rules import choice
from hooks.builtin.pii_rules.recognizers import read_recognizers
from hooks.builtin.pii_rules.reserved import without_reserved
from hooks.detect.argument_types import Names
from hooks.detect.readings import VALUES, Reader
from hooks.detect.rules import RuleDetector
from hooks.detect.span_guard import SpanGuard, SpanOptions

LOCALES = choice.LOCALES
"""The countries (ISO 3166 codes) whose national ids or phone numbers are known."""
ENTITIES = tuple(choice.entity_names())
"""The names of all entities."""
_TIMEOUT = 1.0
"""Seconds that a search may take with patterns of a file."""


class Pii(SpanGuard):
    """Finds personal data: addresses, phone numbers, cards, accounts and national ids."""

    thread_safe = True

    @checked
    def __init__(
        self,
        *,
        entities: Names | None = None,
        locales: Names | None = None,
        recognizers: str | Path | None = None,
        allow: Sequence[str] = (),
        reserved: Literal["pass", "find"] = "pass",
        **options: Unpack[SpanOptions],
    ) -> None:
        """`entities`: the kinds to find, by name or by country (`DE`: all entities of Germany). None: the
        kinds that stay quiet on any text. `locales`: the countries, as `de`, whose ids and phone numbers in
        national form to find, as if they were chosen. None: those of all countries that stay quiet.

        `recognizers`: a file of Presidio's pattern recognizers (YAML), which find further kinds. `allow`: the
        texts that are no finds, and patterns between slashes as `/@initech\\.org$/`. `reserved`: whether
        addresses pass that are nobody's, as `noreply@`, `git@`, `@example.org`, `127.0.0.1` and `10.0.0.1`.

        Raises `ValueError` for an unknown entity or country, for an entity that needs the extra `ids` if it
        is not installed, and for a recognizer that cannot be kept.
        """
        rules = choice.chosen_rules(entities, locales)
        if reserved == "pass":
            rules = without_reserved(rules)
        if recognizers is not None:
            rules += read_recognizers(recognizers)
        detector = RuleDetector(rules, timeout=None if recognizers is None else _TIMEOUT, allow=allow)
        super().__init__(Reader(detector, VALUES), **options)
