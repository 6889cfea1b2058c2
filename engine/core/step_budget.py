"""Learns how many prompt tokens a step may compute beside sequences that decode. Arithmetic on given times.

A sequence that decodes waits for the whole of every step. The time that prompts add to a step is the delay of
their neighbours' next tokens. No fixed number of prompt tokens is right for every model, machine and batch.
So two times are learned: how long steps take that only decode, and how much prompts add to a step, as a line:

    added = overhead + tokens * seconds per token

The prompts get as many tokens as let a step take `SLOWDOWN` times as long as one that only decodes. If the
overhead alone takes longer than that, few tokens delay a step as much as many; then prompts get as many
tokens as add the overhead once more.

If more sequences wait for their prompts than decode, the share grows in proportion: one stream is not kept
smooth at the cost of twenty that have not begun.

If none decodes, nobody's next token is late, but a prompt that comes during the step waits for its end. So
such a step takes about `PROMPT_SECONDS`, by the time that tokens took in earlier ones.
"""

from collections import deque
from statistics import median

SLOWDOWN = 1.65
"""How many times as long as a step that only decodes a step with prompts may take. It is below the promised
2, since some steps take longer than planned."""
FIRST_SHARE = 16
"""Prompt tokens in the first step that has any. Later steps have at most twice as many as were tried."""
MIN_SHARE = 2
PROMPT_SECONDS = 0.125
"""Seconds of a step in which no sequence decodes."""
FEWEST_PROMPT_TOKENS = 128
"""Prompt tokens that such a step may always have, since small matrix products are slow. It is the share of
the first one."""
DITHER = 0.7
"""Every other step gets this part of the share, since a line needs points that differ."""
NUM_REMEMBERED = 5
"""Steps that only decoded; the median of their times counts."""
MAX_MIXED_IN_A_ROW = 16
"""After this many steps with prompts, a step without prompts measures again how long one takes."""
ALIKE = 1.25
"""Two steps compare if their numbers of decoding sequences differ by this factor at most."""


class StepBudget:
    """`fixed`: the prompt tokens of every step; None: learn the number."""

    def __init__(self, fixed: int | None = None) -> None:
        self._fixed = fixed
        self._tried = FIRST_SHARE / 2
        """The largest share that prompts used up."""
        self._crowding = 1.0
        """Waiting prompts for each sequence that decodes, in the last step planned; at least 1."""
        self._planned: int | None = None
        """Prompt tokens of that step; None once it is over."""
        self._decode_seconds: deque[float] = deque(maxlen=NUM_REMEMBERED)
        self._num_decodes = 0
        """Sequences that decoded in those steps."""
        self._prompt_share = float(FEWEST_PROMPT_TOKENS)
        """Prompt tokens of a step in which no sequence decodes."""
        self._num_mixed = 0
        """Steps with prompts since the last step without."""
        self._added = _Line()
        self._was_late = False
        """Whether the last step took much longer than expected. One such step may have any reason. Two in a
        row mean that the line is no longer right."""

    def plan(self, num_decodes: int, num_prompts: int) -> int:
        """The prompt tokens of the next step; now and then 0. `num_decodes`: sequences that decode in it, at
        least 1; `num_prompts`: sequences that wait for their prompts."""
        if self._fixed is not None:
            return self._fixed
        self._crowding = max(1.0, num_prompts / num_decodes)
        is_measured = self._is_alike(num_decodes) and self._num_mixed < MAX_MIXED_IN_A_ROW
        dither = DITHER if self._num_mixed % 2 else 1
        self._planned = round(self._share() * self._crowding * dither) if is_measured else 0
        return self._planned

    def plan_prompts(self) -> int | None:
        """The prompt tokens of the next step, in which no sequence decodes. None: as many as there are."""
        return None if self._fixed is not None else round(self._prompt_share)

    def observe(self, num_decodes: int, num_prefill_tokens: int, seconds: float) -> None:
        """Learn from the planned step: how many sequences decoded, its prompt tokens, how long it took."""
        planned, self._planned = self._planned, None
        if not num_decodes and num_prefill_tokens >= self._prompt_share / 2:
            right = num_prefill_tokens * PROMPT_SECONDS / max(seconds, 1e-9)
            # Up at once, since no step is faster than the machine. Down halfway, so that one slow step
            # changes little.
            share = max(right, (self._prompt_share + right) / 2)
            self._prompt_share = max(FEWEST_PROMPT_TOKENS, share)
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
        """Prompt tokens of a step, if no more prompts wait than sequences decode."""
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
    """The line through points. The latest points weigh most."""

    FORGETTING = 0.9
    """A point's weight when the next point comes, which weighs 1."""
    PRIOR = 0.01
    """The weight of the guess that the line goes through the origin. It decides if points hardly differ."""

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
        """The line's value at 0, and its slope. Neither is less than 0."""
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
