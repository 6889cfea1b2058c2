"""The facts of one guarded request."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from engine.protocol import GenerationRequest, Usage
from hooks.decisions.hidden_values import HiddenValues
from hooks.decisions.log import DecisionLog
from hooks.decisions.tally import Tallies
from hooks.loading.fuse import Run
from hooks.loading.loader import LoadedHook
from hooks.loading.options import PipelineOptions


@dataclass(slots=True)
class GuardedRequest:
    """The facts that all parts of one request's guard share."""

    request: GenerationRequest
    """The request that the guard was opened for; once hooks have admitted it, the one that they returned."""
    hooks: list[LoadedHook]
    tallies: Tallies
    """The pipeline's counts, by hook."""
    options: PipelineOptions = field(default_factory=PipelineOptions)
    decisions: DecisionLog | None = None
    """None: no hook listens to decisions."""
    usage: Usage | None = None
    """The running totals, as the engine last reported them."""
    num_rewinds: int = 0
    """Rewinds of the outputs so far."""
    states: dict[int, dict[Any, Any]] = field(default_factory=partial(defaultdict, dict))
    """Each hook's state for the request, by the hook's `id` (contract 2.12): two hooks may have one name."""
    runs: Sequence[Run] = ()
    """The hooks that are fused. Each other hook is called with every chunk."""
    suspicions: dict[int, str] = field(default_factory=dict)
    """The first suspicion of each hook that has one, by the hook's place (contract 3.16)."""

    own_names: dict[str, str] = field(default_factory=dict)
    """The names that the caller gave the tools that hooks renamed, by their new names (contract 8.17)."""
    values: dict[str, str] = field(default_factory=dict)
    """The caller's values that hooks bring back, by placeholder (contract 9.11)."""
    hidden_values: HiddenValues = field(init=False)
    """Keeps `values` out of decisions."""

    def __post_init__(self) -> None:
        self.hidden_values = HiddenValues(self.values)

    @property
    def is_enforced(self) -> bool:
        """Whether a hook's verdicts have an effect."""
        return not all(hook.is_shadow for hook in self.hooks)

    @property
    def keeps_calls(self) -> bool:
        """Whether a tool call waits until its hooks have passed all of it (contract 3.20)."""
        return self.options.tool_calls == "whole" and self.is_enforced

    @property
    def can_rewind(self) -> bool:
        """Whether hooks may rewind an output once more (contract 8.3)."""
        return self.num_rewinds < self.options.max_rewinds and not self.request.is_searched
