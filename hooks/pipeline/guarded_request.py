"""The facts of one guarded request."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from engine.protocol import Delta, GenerationRequest, Usage
from hooks.decisions.hidden_values import HiddenValues
from hooks.decisions.log import DecisionLog
from hooks.decisions.tally import Tallies
from hooks.loading.fuse import Run
from hooks.loading.loader import LoadedHook
from hooks.loading.options import PipelineOptions
from hooks.pipeline.ask import Question


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
    can_ask: bool = False
    """Whether a person can be asked about tool calls (contract 3.21)."""
    questions: list[Question] = field(default_factory=list)
    """The questions to a person that the driver does not know yet."""
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

    def is_cut(self, last: Delta) -> bool:
        """Whether the delta ends the output at a place that the client chose, or may have (contract 2.9).

        An upstream may report a stop string like the model's own end. If the client gave one, the model's
        own end is one that comes with a textless token of a known id, as the end of sequence does. Upstreams
        know more fields for stops than Weir, as `stop_regex`.
        """
        request = self.request
        is_own_reason = last.finish_reason in ("stop", "tool_calls") and last.stop_reason is None
        if not is_own_reason or last.is_cut or request.steers_end:
            return True
        may_stop = (
            request.sampling.stop or request.sampling.stop_token_ids or "stop" in " ".join(request.extra)
        )
        end = last.tokens[-1] if last.tokens else None
        return bool(may_stop) and (end is None or bool(end.text) or end.id is None)

    def for_client(self, last: Delta) -> Delta:
        """The delta for the client: without the engine's stop reason, if that is text that no hook was shown
        (contract 2.7, 6.2), as a stop string is, or a stop token that is not a special token."""
        if not self.is_enforced:
            return last
        ends_in = last.tokens[-1] if last.tokens else None
        is_special = ends_in is not None and not ends_in.text and ends_in.id == last.stop_reason
        return last if is_special else replace(last, stop_reason=None, is_cut=True)
