"""How many prompt tokens a step may compute beside sequences that decode. Arithmetic on times it is told.

A sequence that decodes waits for the whole of every step, so that what prompts add to a step is what their
neighbours' next tokens are late by. No fixed number of tokens is right for that: it depends on model, machine
and batch. So it is learnt: how long steps take that only decode, and what prompts add to one, as a line:

    added = overhead + tokens * seconds per token

The prompts' share is what lets a step take `SLOWDOWN` times as long as one that only decodes. Where the
overhead alone is more than that, few tokens make a step as late as many do; then the share is what adds as
much again.

Where more sequences wait for their prompts than decode, the share grows in proportion: one stream is not kept
smooth at the cost of twenty that have not begun.
"""

from collections import deque
from statistics import median

SLOWDOWN = 1.65
"""How much longer a step may take than one that only decodes. Less than what is promised (2), since some take
longer than they were meant to."""
FIRST_SHARE = 16
"""Prompt tokens in the first step of all that has some. From then on, at most twice as many as were tried."""
MIN_SHARE = 2
DITHER = 0.7
"""Every other step has this part of the share: a line needs points that differ."""
NUM_REMEMBERED = 5
"""Steps that only decoded, of whose times the median counts."""
MAX_MIXED_IN_A_ROW = 16
"""Steps with prompts, after which one without tells again how long those take."""
ALIKE = 1.25
"""Steps of more than so many times as many sequences that decode, or fewer, take another time."""


class StepBudget:
    """`fixed`: a number of prompt tokens that is always right; None: learn it."""

    def __init__(self, fixed: int | None = None) -> None:
        self._fixed = fixed
        self._tried = FIRST_SHARE / 2
        """The largest share that was used whole."""
        self._crowding = 1.0
        """Prompts for each sequence that decodes, in the step last planned; at least 1."""
        self._planned: int | None = None
        """Tokens that prompts may have of it; None once it is over."""
        self._decode_seconds: deque[float] = deque(maxlen=NUM_REMEMBERED)
        self._num_decodes = 0
        """In the steps that took these."""
        self._num_mixed = 0
        """Steps with prompts since the last without."""
        self._added = _Line()
        self._was_late = False
        """The last step took much longer than was to be expected. One may have, for any reason; two in a row
        mean that what was learnt is no longer so."""

    def plan(self, num_decodes: int, num_prompts: int) -> int:
        """What prompts may have of the next step, so many sequences (at least 1) decoding in it and so many
        waiting for their prompts; now and then nothing."""
        if self._fixed is not None:
            return self._fixed
        self._crowding = max(1.0, num_prompts / num_decodes)
        is_measured = self._is_alike(num_decodes) and self._num_mixed < MAX_MIXED_IN_A_ROW
        dither = DITHER if self._num_mixed % 2 else 1
        self._planned = round(self._share() * self._crowding * dither) if is_measured else 0
        return self._planned

    def observe(self, num_decodes: int, num_prefill_tokens: int, seconds: float) -> None:
        """Learn from the step planned: how many decoded in it, its prompt tokens, how long it took."""
        planned, self._planned = self._planned, None
        if planned is None or not num_decodes:
            return
        if num_prefill_tokens:
            self._num_mixed += 1
            if planned:
                self._learn(num_prefill_tokens, max(0.0, seconds - median(self._decode_seconds)))
            if num_prefill_tokens >= planned:
                self._tried = max(self._tried, num_prefill_tokens / self._crowding)
            return
        if not self._is_alike(num_decodes):
            self._decode_seconds.clear()
            self._num_decodes = num_decodes
        self._decode_seconds.append(seconds)
        self._num_mixed = 0

    def _is_alike(self, num_decodes: int) -> bool:
        return self._num_decodes <= num_decodes * ALIKE and num_decodes <= self._num_decodes * ALIKE

    def _room(self) -> float:
        """Seconds that prompts may add to a step."""
        return (SLOWDOWN - 1) * median(self._decode_seconds)

    def _share(self) -> float:
        """Prompt tokens, where no more prompts wait than sequences decode."""
        overhead, per_token = self._added.fit()
        limit = max(self._room(), 2 * overhead)
        tried = 2 * self._tried
        return max(MIN_SHARE, min(tried, (limit - overhead) / per_token) if per_token else tried)

    def _learn(self, num_tokens: int, added: float) -> None:
        if added > 2 * max(self._room() * self._crowding, self._added.at(num_tokens)):
            self._was_late = not self._was_late
            if self._was_late:
                return
            self._added = _Line()
        self._was_late = False
        self._added.put(num_tokens, added)


class _Line:
    """The line through points of which the latest weigh most."""

    FORGETTING = 0.9
    """Weight of a point in that of the next."""
    PRIOR = 0.01
    """Weight of the guess that it goes through the origin; with points that hardly differ, it decides."""

    def __init__(self) -> None:
        self._n = self._x = self._y = self._xx = self._xy = 0.0
        """Weighted sums."""

    def put(self, x: float, y: float) -> None:
        keep = self.FORGETTING
        self._n = keep * self._n + 1
        self._x = keep * self._x + x
        self._y = keep * self._y + y
        self._xx = keep * self._xx + x * x
        self._xy = keep * self._xy + x * y

    def fit(self) -> tuple[float, float]:
        """Where it begins and how it rises, neither less than 0."""
        if not self._n:
            return 0.0, 0.0
        x, y = self._x / self._n, self._y / self._n
        spread, together = self._xx / self._n - x * x, self._xy / self._n - x * y
        slope = (together + self.PRIOR * x * y) / (spread + self.PRIOR * x * x)
        slope = min(max(slope, 0.0), y / x)
        return y - slope * x, slope

    def at(self, x: float) -> float:
        start, slope = self.fit()
        return start + slope * x
