"""Learns how many prompt tokens a step may compute beside sequences that decode. Arithmetic on given times.

A sequence that decodes waits for the whole of every step. The time that prompts add to a step is the delay of
their neighbours' next tokens. No fixed number of prompt tokens is right for every model, machine and batch.
So two times are learned: how long steps take that only decode, and how much prompts add to a step
(`PromptCost`). Prompt tokens are counted in the units of `PromptCost`, since a token late in a long prompt
costs more than an early one.

The prompts get as much as lets a step take `SLOWDOWN` times as long as one that only decodes. If the overhead
alone takes longer than that, few tokens delay a step as much as many; then prompts get as much as adds the
overhead once more.

While costs are unknown, shares grow carefully: a step gets at most twice the prompt tokens of the last one.

If more sequences wait for their prompts than decode, the share grows in proportion: one stream is not kept
smooth at the cost of twenty that have not begun.

If none decodes, or only sequences that prompts may delay, a prompt that comes during the step still waits for
its end. So such a step takes about `PROMPT_SECONDS`, by the time that tokens took in earlier ones.
"""

from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

from engine.scheduling.prompt_cost import PromptCost, num_attended

SLOWDOWN = 1.65
"""The longest time of a step with prompts, as a multiple of that of a step that only decodes. It is below the
promised 2, since some steps take longer than planned."""
MOST = 0.9
"""The most that prompts with a long overhead may add, as a part of a step that only decodes."""
FIRST_SHARE = 8
"""Prompt tokens in the first step that has any."""
MIN_SHARE = 3
"""The least share of a step that has any. With `DITHER`, 2 and 3 tokens take turns: steps of one token alone
would say nothing of an overhead."""
PROMPT_SECONDS = 0.125
"""Seconds of a step whose prompts may delay all that decode in it."""
FEWEST_PROMPT_TOKENS = 128
"""Prompt tokens that a step of about `PROMPT_SECONDS` may always have, since small matrix products are slow.
The first such step has as many."""
DITHER = 0.7
"""Every other step gets this part of the share, since a line needs points that differ."""
NUM_REMEMBERED = 5
"""Steps that only decoded; the median of their times counts."""
MAX_MIXED_IN_A_ROW = 16
"""After this many steps with prompts, a step without prompts measures again how long one takes."""
ALIKE = 1.25
"""Two steps compare if their numbers of decoding sequences differ by this factor at most,"""
ALIKE_CONTEXT = 2.0
"""and if the tokens that they attend to differ by this factor at most."""
SHORT = 256
"""Tokens that a sequence attends to at about no cost. They are added before contexts are compared."""
NUM_GROUPS = 32
"""Groups of steps that compare and that are remembered."""


@dataclass(slots=True)
class _DecodeSteps:
    """The latest steps that only decoded, among those that compare with each other."""

    num_decodes: int
    num_context: int
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=NUM_REMEMBERED))

    def compares(self, num_decodes: int, num_context: int) -> bool:
        return _is_within(ALIKE, self.num_decodes, num_decodes) and _is_within(
            ALIKE_CONTEXT, self.num_context + SHORT * self.num_decodes, num_context + SHORT * num_decodes
        )


class Budget(Protocol):
    """Plans a step's prompt tokens, and learns how long the step took."""

    def plan(self, num_decodes: int, num_prompts: int, num_context: int = 0) -> float:
        """The units of the next step's prompt tokens; now and then 0. `num_decodes`: sequences that decode in
        it, at least 1; `num_prompts`: sequences that wait for their prompts; `num_context`: tokens that those
        that decode attend to."""

    def plan_prompts(self) -> float | None:
        """The units of the next step, if its prompts may delay all that decode in it. None: as many as there
        are."""

    def num_tokens(self, units: float, num_context: int) -> int:
        """The tokens that a prompt gets for `units`, which are at least 1. It gets at least one token, and at
        most one for each unit. `num_context` of its tokens are computed."""

    def units(self, num_tokens: int, num_context: int) -> float:
        """The cost of the prompt's next tokens."""

    def begin(self) -> None:
        """Note that the step planned last begins. Another one may be planned before `observe`."""

    def observe(
        self, num_decodes: int, num_prefill_tokens: int, seconds: float, attended: float = 0.0
    ) -> None:
        """Learn from the step that has begun, or was planned, last: how many sequences decoded, its prompt
        tokens, how long it took. `attended`: the sum of `num_attended` of these tokens."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """The numbers that a step was planned with."""

    decodes: _DecodeSteps
    """The group that the step compares with. If it is new, it has no steps."""
    crowding: float = 1.0
    """Waiting prompts for each sequence that decodes; at least 1."""
    units: float | None = None
    """None: its prompts may delay all that decode in it, or it was not planned."""


_UNPLANNED = _Plan(_DecodeSteps(0, 0))


class StepBudget:
    """Implements `Budget`. `fixed`: the prompt tokens of every step; None: learn the number."""

    def __init__(self, fixed: int | None = None) -> None:
        self._fixed = fixed
        self._tried = self._tried_tokens = FIRST_SHARE / 2
        """The share, in units and in tokens, of the last step whose share prompts used up. Half of the first
        share before there is such a step."""
        self._plan = _UNPLANNED
        """The plan of the step that was planned last."""
        self._begun: _Plan | None = None
        """The plan of the step whose time is measured."""
        self._decode_steps: list[_DecodeSteps] = []
        """The group that was used last is the last one."""
        self._prompt_share = float(FEWEST_PROMPT_TOKENS)
        """Units of a step whose prompts may delay all that decode in it."""
        self._num_mixed = 0
        """Steps with prompts since the last step without."""
        self._cost = PromptCost()
        self._was_late = False
        """Whether the last step took much longer than expected. One such step may have any reason. After two
        in a row, the learned costs are outdated."""

    def plan(self, num_decodes: int, num_prompts: int, num_context: int = 0) -> float:
        if self._fixed is not None:
            return self._fixed
        crowding = max(1.0, num_prompts / num_decodes)
        decodes = self._group(num_decodes, num_context)
        is_measured = decodes.seconds and self._num_mixed < MAX_MIXED_IN_A_ROW
        units = self._share(decodes) * crowding * self._dither if is_measured else 0.0
        self._plan = _Plan(decodes, crowding, units)
        return units

    def plan_prompts(self) -> float | None:
        self._plan = _UNPLANNED
        return None if self._fixed is not None else self._prompt_share

    def num_tokens(self, units: float, num_context: int) -> int:
        if self._fixed is not None:
            return int(units)
        # Neither share may grow fast: the cost of late tokens is a guess for early ones, and vice versa.
        num_tokens = self._cost.num_tokens(units, num_context)
        if self._plan.units is None:
            return max(1, num_tokens, min(int(units), FEWEST_PROMPT_TOKENS))
        fewest = min(round(MIN_SHARE * self._dither), int(units))
        return max(fewest, min(num_tokens, self._most_tokens(self._plan)))

    def units(self, num_tokens: int, num_context: int) -> float:
        if self._fixed is not None:
            return num_tokens
        return self._cost.units(num_tokens, num_attended(num_tokens, num_context))

    def begin(self) -> None:
        self._begun, self._plan = self._plan, _UNPLANNED

    def observe(
        self, num_decodes: int, num_prefill_tokens: int, seconds: float, attended: float = 0.0
    ) -> None:
        if self._begun is None:
            self.begin()
        assert self._begun is not None
        plan, self._begun = self._begun, None
        planned = plan.units
        units = self._cost.units(num_prefill_tokens, attended)
        if planned is None and units >= self._prompt_share / 2:
            right = units * PROMPT_SECONDS / max(seconds, 1e-9)
            # Up at once, since no step is faster than the machine. Down halfway, so that one slow step
            # changes little.
            share = max(right, (self._prompt_share + right) / 2)
            self._prompt_share = max(FEWEST_PROMPT_TOKENS, share)
        if planned is None or not num_decodes:
            return
        if num_prefill_tokens:
            self._num_mixed += 1
            if planned:
                added = max(0.0, seconds - median(plan.decodes.seconds))
                self._learn(num_prefill_tokens, attended, added, plan)
            is_full = units + units / num_prefill_tokens >= planned  # one more token was too much
            if is_full or num_prefill_tokens >= self._most_tokens(plan):
                self._tried = planned / plan.crowding
                self._tried_tokens = num_prefill_tokens / plan.crowding
            return
        plan.decodes.seconds.append(seconds)
        self._num_mixed = 0

    @property
    def _dither(self) -> float:
        return DITHER if self._num_mixed % 2 else 1.0

    def _group(self, num_decodes: int, num_context: int) -> _DecodeSteps:
        groups = self._decode_steps
        at = next(
            (i for i in reversed(range(len(groups))) if groups[i].compares(num_decodes, num_context)), None
        )
        groups.append(_DecodeSteps(num_decodes, num_context) if at is None else groups.pop(at))
        del groups[:-NUM_GROUPS]
        return groups[-1]

    def _most_tokens(self, plan: _Plan) -> int:
        return max(MIN_SHARE, int(2 * self._tried_tokens * plan.crowding))

    def _room(self, decodes: _DecodeSteps) -> float:
        """Seconds that prompts may add to a step."""
        return (SLOWDOWN - 1) * median(decodes.seconds)

    def _share(self, decodes: _DecodeSteps) -> float:
        """Units of a step, if no more prompts wait than sequences decode."""
        overhead, per_unit = self._cost.fit()
        room = self._room(decodes)
        borne = 2 * overhead if overhead > room else min(2 * overhead, MOST * median(decodes.seconds))
        tried = 2 * self._tried
        share = (max(room, borne) - overhead) / per_unit if per_unit else tried
        return max(MIN_SHARE, min(tried, share))

    def _learn(self, num_tokens: int, attended: float, added: float, plan: _Plan) -> None:
        expected, room = self._cost.seconds(num_tokens, attended), self._room(plan.decodes) * plan.crowding
        if expected and added > 2 * max(room, expected):
            if self._was_late:
                self._cost.forget()
                self._tried = self._tried_tokens = FIRST_SHARE / 2
            self._was_late = not self._was_late
            return
        if expected and num_tokens <= self._tried_tokens * plan.crowding:
            # A step with few tokens that is a little late by chance makes a token look slow for a long time.
            added = min(added, max(2 * expected, room / 2))
        self._was_late = False
        self._cost.learn(num_tokens, attended, added)


def _is_within(factor: float, a: float, b: float) -> bool:
    return a <= factor * b and b <= factor * a
