"""The number of tokens that a step of a classifier computes. Arithmetic on given times.

Other models on the thread wait for the step's end, so a step with much to compute takes about `STEP_SECONDS`,
by the time that tokens took in earlier ones. A judgement is not cut, however long its tokens take: each part
of it would read all weights again.
"""

STEP_SECONDS = 0.05
FEWEST_TOKENS = 32
"""Tokens that a step may always have: as many as most guards judge together."""


class JudgingBudget:
    """Implements `Budget` (`engine.scheduling.step_budget`). A unit is a token."""

    def __init__(self, fixed: int | None = None) -> None:
        """`fixed`: the tokens of every step; None: learn the number."""
        self._share = float(fixed or FEWEST_TOKENS)
        self._is_fixed = fixed is not None

    def plan(self, num_decodes: int, num_prompts: int, num_context: int = 0) -> float:
        return self._share

    def plan_prompts(self) -> float:
        return self._share

    def num_tokens(self, units: float, num_context: int) -> int:
        return int(units)

    def units(self, num_tokens: int, num_context: int) -> float:
        return num_tokens

    def begin(self) -> None:
        """Every plan is the same."""

    def observe(
        self, num_decodes: int, num_prefill_tokens: int, seconds: float, attended: float = 0.0
    ) -> None:
        if self._is_fixed or num_prefill_tokens < self._share / 2:
            return
        right = num_prefill_tokens * STEP_SECONDS / max(seconds, 1e-9)
        # Up at once, since no step is faster than the machine. Down halfway, so that one slow step changes
        # little.
        self._share = max(FEWEST_TOKENS, right, (self._share + right) / 2)
