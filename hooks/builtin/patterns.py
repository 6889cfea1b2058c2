"""Regular expressions that no text may match: `patterns`, with `args: {patterns: {ticket: 'T-\\d{6}'}}`.

The patterns have the syntax of the `regex` package.
"""

from collections.abc import Mapping, Sequence
from typing import Unpack

from hooks import checked
from hooks.detect.argument_types import Count, Seconds, blamed_on
from hooks.detect.readings import ESCAPES, Reader
from hooks.detect.rules import Rule, RuleDetector
from hooks.detect.span_guard import SpanGuard, SpanOptions


class Patterns(SpanGuard):
    """Finds matches of regular expressions."""

    thread_safe = True

    @checked
    def __init__(
        self,
        patterns: Mapping[str, str] | Sequence[str],
        *,
        max_length: Count | Mapping[str, Count] | None = None,
        timeout: Seconds = 0.1,
        **options: Unpack[SpanOptions],
    ) -> None:
        """`patterns`: patterns by their entity's name, or a list; the entity of a list is `pattern`.

        `max_length`: most characters of a match, for all patterns or by name; a longer text is ignored. The
        guard holds text that could become a match, so a pattern without a bound, as `a.*b`, needs
        `max_length`. `timeout`: seconds that one search may take; a longer search fails and ends the request.

        Raises `ValueError` for a pattern that is invalid, has no bound, or cannot be searched in a stream.
        """
        named = patterns.items() if isinstance(patterns, Mapping) else (("pattern", p) for p in patterns)
        limits = max_length if isinstance(max_length, Mapping) else {}
        limit = None if isinstance(max_length, Mapping) else max_length
        rules = [Rule(name, pattern, max_length=limits.get(name, limit)) for name, pattern in named]
        if unknown := set(limits) - {rule.entity for rule in rules}:
            raise ValueError(f"max_length names unknown patterns: {', '.join(sorted(unknown))}")
        with blamed_on("patterns"):
            detector = RuleDetector(rules, timeout)
        super().__init__(Reader(detector, ESCAPES), **options)
