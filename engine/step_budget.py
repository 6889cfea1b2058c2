"""How many prompt tokens a step may compute beside sequences that decode. Arithmetic on times it is told.

A sequence that decodes waits for the whole of every step, so that what prompts add to a step is what their
neighbours' next tokens are late by. No fixed number of tokens is right for that: it depends on model, machine
and batch. So it is learnt: how long steps take that only decode, and by how much the prompts' share made one
longer. The share is then scaled to what would have made it `SLOWDOWN` times as long, and at most doubled or
halved at once, since a single step may have taken long for any reason.

Where more sequences wait for their prompts than decode, the prompts' share grows in proportion: one stream is
not kept smooth at the cost of twenty that have not begun.
"""

from collections import deque
from statistics import median

SLOWDOWN = 1.75
"""How much longer a step may take than one that only decodes. Less than what is promised (2), since some take
longer than they were meant to."""
MIN_PREFILL_TOKENS = 16
"""The least that prompts get: they have to come to their end, whatever that costs others."""
NUM_REMEMBERED = 5
"""Steps that only decoded, of whose times the median counts."""
MAX_MIXED_IN_A_ROW = 16
"""Steps with prompts, after which one without tells again how long those take."""


class StepBudget:
    """`fixed`: a number of prompt tokens that is always right; None: learn it."""

    def __init__(self, fixed: int | None = None) -> None:
        self._fixed = fixed
        self._tokens = float(MIN_PREFILL_TOKENS)
        self._crowding = 1.0
        """Prompts for each sequence that decodes, in the step last planned; at least 1."""
        self._decode_seconds: deque[float] = deque(maxlen=NUM_REMEMBERED)
        self._num_mixed = 0
        """Steps with prompts since the last without."""

    def plan(self, num_decodes: int, num_prompts: int) -> int:
        """What prompts may have of the next step, so many sequences (at least 1) decoding in it and so many
        waiting for their prompts; now and then nothing."""
        self._crowding = max(1.0, num_prompts / num_decodes)
        if self._fixed is not None:
            return self._fixed
        if not self._decode_seconds or self._num_mixed >= MAX_MIXED_IN_A_ROW:
            return 0
        return int(self._tokens * self._crowding)

    def observe(self, num_decodes: int, num_prefill_tokens: int, seconds: float) -> None:
        """Learn from the step planned: how many decoded in it, its prompt tokens, how long it took."""
        if not num_decodes:
            return
        if not num_prefill_tokens:
            self._decode_seconds.append(seconds)
            self._num_mixed = 0
            return
        self._num_mixed += 1
        if self._decode_seconds:
            self._learn(num_prefill_tokens, seconds, median(self._decode_seconds))

    def _learn(self, num_prefill_tokens: int, seconds: float, decode_seconds: float) -> None:
        room = (SLOWDOWN - 1) * decode_seconds * self._crowding
        added = seconds - decode_seconds
        if added > room:
            fitting = num_prefill_tokens * room / added / self._crowding
            self._tokens = max(fitting, self._tokens / 2, MIN_PREFILL_TOKENS)
        elif num_prefill_tokens >= int(self._tokens * self._crowding):
            # Few tokens tell little of what many would cost; so it grows only when all of it was used.
            self._tokens *= min(2.0, room / added) if added > 0 else 2.0
