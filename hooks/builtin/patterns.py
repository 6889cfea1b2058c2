"""Regular expressions that nothing said may match: `patterns`, with `args: {patterns: {ticket: 'T-\\d{6}'}}`.

The syntax is that of the `regex` package.
"""

from collections.abc import Mapping, Sequence
from typing import Unpack

from hooks import checked
from hooks.detect.actor import Options
from hooks.detect.argument_types import Count, Seconds, blamed_on
from hooks.detect.readings import ESCAPES, Reader
from hooks.detect.rules import Rule, RuleDetector
from hooks.detect.spans import SpanGuard


class Patterns(SpanGuard):
    """Finds matches of regular expressions."""

    @checked
    def __init__(
        self,
        patterns: Mapping[str, str] | Sequence[str],
        *,
        max_length: Count | Mapping[str, Count] | None = None,
        timeout: Seconds = 0.1,
        **options: Unpack[Options],
    ) -> None:
        """`patterns`: by the names that matches get as their entity, or a list, whose entity is `pattern`.

        `max_length`: characters that a match may have, for all patterns or by name; a longer one is none.
        What could become a match is held, so that a pattern without a bound, as `a.*b`, needs it. `timeout`:
        seconds that one search may take; past it the hook has failed, and the request ends.

        Raises `ValueError` for a pattern that is none, has no bound, or cannot be searched for in a stream.
        """
        named = patterns.items() if isinstance(patterns, Mapping) else (("pattern", p) for p in patterns)
        limits = max_length if isinstance(max_length, Mapping) else {}
        limit = None if isinstance(max_length, Mapping) else max_length
        rules = [Rule(name, pattern, max_length=limits.get(name, limit)) for name, pattern in named]
        if unknown := set(limits) - {rule.entity for rule in rules}:
            raise ValueError(f"max_length names patterns that there are not: {', '.join(sorted(unknown))}")
        with blamed_on("patterns"):
            detector = RuleDetector(rules, timeout)
        super().__init__(Reader(detector, ESCAPES), **options)
