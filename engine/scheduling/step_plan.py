"""A step in the making: the tokens that each sequence gets, and what is left of the budget."""

from engine.scheduling.sequence import ScheduledSequence, Sequence
from engine.scheduling.step_budget import Budget


class StepPlan:
    """The shares that were given so far. Each begins where the sequence's computed tokens end."""

    def __init__(self, budget: Budget, units: float) -> None:
        """`units`: those of all prompt tokens, as the `budget` counts them."""
        self.units = units
        """The units that are left."""
        self._budget = budget
        self._ends: dict[Sequence, int] = {}
        self._prompts: dict[Sequence, None] = {}
        """The sequences that compute more than the next token."""

    def end_of(self, seq: Sequence) -> int:
        """The position after the sequence's last token that is computed with this step."""
        return self._ends.get(seq, seq.cache.num_computed_tokens)

    @property
    def partial(self) -> list[Sequence]:
        """The sequences that have a share and need more tokens than it has."""
        return [seq for seq in self._prompts if self._ends[seq] < seq.num_tokens]

    def share(self, seq: Sequence) -> int:
        """The tokens that a prompt may have. The rest is for the prompts after it."""
        if self.units < 1:
            return 0
        begin, wanted = seq.cache.num_computed_tokens, seq.longest_chunk
        if wanted <= self._budget.num_tokens(self.units, begin):
            return wanted
        return self._budget.num_tokens((self.units + 1) / 2, begin)

    def largest_share(self, seq: Sequence) -> int:
        """The tokens that a prompt may have in place of its share, if they need not leave any."""
        units = self.units + self._units_of(seq)
        return min(self._budget.num_tokens(units, seq.cache.num_computed_tokens), seq.longest_chunk)

    def give(self, seq: Sequence, num_tokens: int) -> None:
        """Give a prompt these tokens, in place of the share that it has."""
        self.units += self._units_of(seq)
        self._prompts[seq] = None
        self._ends[seq] = seq.cache.num_computed_tokens + num_tokens
        self.units -= self._units_of(seq)

    def decode(self, seq: Sequence) -> None:
        """Give a sequence that decodes its token, which needs no units."""
        self._ends[seq] = seq.cache.num_computed_tokens + 1

    def scheduled(self) -> list[ScheduledSequence]:
        """The shares. Sequences that compute a single token come first."""
        shares = [
            ScheduledSequence(seq, seq.cache.num_computed_tokens, end) for seq, end in self._ends.items()
        ]
        return sorted(shares, key=lambda s: s.end - s.start > 1)

    def _units_of(self, seq: Sequence) -> float:
        begin = seq.cache.num_computed_tokens
        return self._budget.units(self.end_of(seq) - begin, begin)
