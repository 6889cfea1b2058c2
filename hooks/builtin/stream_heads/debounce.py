"""Rules, by name, for when readings of tokens are an offence. They look at a token and the one before it.

A single token that a model misreads ends no stream under a rule of pairs. The last token of a text is then
undecided if it could be the first one of a pair.
"""

from collections.abc import Sequence
from typing import Literal

from hooks.builtin.stream_heads.heads import Level, Reading

Debounce = Literal["single", "pair", "pair_strict"]
"""single: each token counts. pair: a token and the one before it are not safe (arXiv 2510.14276, section 4).
pair_strict: both have the same level, as the authors' evaluation counts."""


class Offences:
    """Finds the tokens of one text that are offences. `add` gets each token once, in order. `truncate`
    withdraws the last ones."""

    def __init__(self, debounce: Debounce) -> None:
        self._debounce = debounce
        self._readings: list[Reading] = []

    def truncate(self, num_tokens: int) -> None:
        del self._readings[num_tokens:]

    def add(self, readings: Sequence[Reading]) -> None:
        self._readings += readings

    @property
    def are_all_safe(self) -> bool:
        return all(reading.level is Level.SAFE for reading in self._readings)

    @property
    def num_decided(self) -> int:
        """Tokens from the beginning whose part in an offence no later token changes."""
        if self._debounce == "single" or not self._readings:
            return len(self._readings)
        return len(self._readings) - (self._readings[-1].level is not Level.SAFE and not self.is_offence(-1))

    def is_offence(self, at: int) -> bool:
        """Whether the token is in an offence, as far as tokens are known. `at`: its place, as in a list."""
        readings = self._readings
        at %= len(readings)
        if self._debounce == "single":
            return readings[at].level is not Level.SAFE
        with_before = at > 0 and self._is_pair(readings[at - 1], readings[at])
        with_next = at + 1 < len(readings) and self._is_pair(readings[at], readings[at + 1])
        return with_before or with_next

    def _is_pair(self, before: Reading, last: Reading) -> bool:
        are_both = before.level is not Level.SAFE and last.level is not Level.SAFE
        return are_both and (self._debounce == "pair" or before.level is last.level)

    def runs(self, start: int) -> list[tuple[int, int, str]]:
        """The offences among the tokens from `start` on: first token, the token after the last one, and the
        category of the last one."""
        found: list[tuple[int, int, str]] = []
        for at in range(start, len(self._readings)):
            if self._readings[at].level is Level.SAFE or not self.is_offence(at):
                continue
            category = self._readings[at].category
            if found and found[-1][1] == at:
                found[-1] = (found[-1][0], at + 1, category)
            else:
                found.append((at, at + 1, category))
        return found
