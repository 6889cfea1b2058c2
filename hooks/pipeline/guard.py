"""The guard of one request, as a machine without I/O: no await, no clock, no process.

    feed(delta) ─► Ask(hook, chunk) ─► … ─► Step(released, rewind, is_over, error)
                        ▲    │
                        └────┘ the driver calls the hook and sets `Ask.reply`

The machine knows the rules: which hook sees which text, and the effect of a verdict, a failure and a rewind.
`hooks.pipeline.driver` knows hooks, deadlines, tasks and listeners. It runs the machine in
the service and in hook workers alike.
"""

import logging
import math
from collections.abc import Iterator, Sequence

from engine.protocol import Delta, EngineError, GenerationRequest, Rewind, Usage
from hooks.api import terminate
from hooks.api.decision import Held
from hooks.decisions.failure import HookError
from hooks.decisions.log import DecisionLog
from hooks.decisions.tally import ReleasedUsage, Tallies
from hooks.loading.fuse import Run
from hooks.loading.loader import LoadedHook
from hooks.loading.options import PipelineOptions
from hooks.pipeline.admission import ask_prompt
from hooks.pipeline.ask import Asking, Machine, Step
from hooks.pipeline.delivery import Delivery, DiffersError
from hooks.pipeline.guarded_request import GuardedRequest
from hooks.pipeline.look_ahead import look_ahead
from hooks.pipeline.output import Output
from hooks.prompts.names import own_names

logger = logging.getLogger("weir.hooks")

EndsRequest = HookError, EngineError


class Guard:
    """One request's machine and its state, dropped with the request.

    `admit`, `feed` and `close` each return a `Machine` for the driver to run to its end, one at a time.
    """

    def __init__(
        self,
        request: GenerationRequest,
        hooks: list[LoadedHook],
        tallies: Tallies,
        options: PipelineOptions,
        *,
        can_rewind: bool = False,
        can_ask: bool = False,
        decisions: DecisionLog | None = None,
        runs: Sequence[Run] = (),
    ) -> None:
        """`can_rewind`, `can_ask`: see `GuardFactory.open`. `decisions`: gets the hooks' decisions, for the
        driver to report; None: nobody listens. `runs`: the hooks that are fused. They are not fused if
        holds are reported, which name the hook that held a text, or if a hook may rewind."""
        self.may_rewind = can_rewind and any(hook.may_rewind and not hook.is_shadow for hook in hooks)
        """Whether a hook may rewind outputs, and the engine can."""
        self.guarded = GuardedRequest(request, hooks, tallies, options, decisions, can_ask=can_ask)
        if (decisions is None or decisions.min_held == math.inf) and not self.may_rewind:
            self.guarded.runs = runs
        self._outputs = list(map(self._output, range(request.num_outputs)))
        self._released_usage = ReleasedUsage() if options.usage == "released" else None
        self._is_terminated = False

    def admit(self, shown: GenerationRequest) -> Machine:
        """Show the request to the hooks that read prompts (contract 8.1). `shown`: its prompts as text.

        If a hook refuses, the step has the reason. If the hook gave a text as well, the step releases that
        text as the whole answer, and is over.
        """
        guarded = self.guarded
        guarded.request = shown
        released: list[Delta] = []
        refused: str | None = None
        place: str | None = None
        error: Exception | None = None
        try:
            for i, hook in enumerate(guarded.hooks):
                if hook.on_request is None:
                    continue
                if (refusal := (yield from ask_prompt(guarded, hook))) is None:
                    continue
                if refusal.text is None:
                    refused, place = refusal.reason, refusal.place
                else:
                    guarded.hooks, guarded.runs = guarded.hooks[i + 1 :], ()
                    released = yield from self._answer(refusal.text, refusal.reason)
                break
        except EndsRequest as failure:
            error = failure
        if guarded.request is not shown:
            guarded.own_names = own_names(shown.tool_names, guarded.request.tool_names)
        step = self._step(released, refused=refused, error=error)
        step.refused_at = place
        yield step

    def _answer(self, text: str, reason: str) -> Asking[list[Delta]]:
        """Answer with the refusal's text, in the engine's place."""
        self._is_terminated = True
        self.guarded.usage = Usage(0, 0)
        released: list[Delta] = []
        for output in self._outputs:
            released += yield from output.refuse(text)
            released += output.end(self.guarded.options.terminate_finish_reason, reason)
        return released

    def feed(self, delta: Delta) -> Machine:
        """Show one delta of the engine's to the hooks."""
        guarded = self.guarded
        output = self._outputs[delta.index]
        if delta.usage is not None:
            guarded.usage = delta.usage
        if output.is_finished:
            yield self._step([])
            return
        num_decisions = len(guarded.decisions or ())
        is_repeated = output.delivery is not None and output.delivery.feed(delta)
        released: list[Delta] = []
        rewound: Rewind | None = None
        error: Exception | None = None
        try:
            released, ends = yield from output.feed(delta)
            if isinstance(ends, Rewind):
                rewound = ends
                yield from self._restart_output(output)
            elif ends is not None:
                released += yield from self._terminate(output, ends)
        except DiffersError:
            released = yield from self._end_differing(output)
        except EndsRequest as failure:
            released, error = [], failure
        finally:
            if is_repeated and guarded.decisions is not None:
                guarded.decisions.forget_repeated(num_decisions)
        if self._released_usage is not None:
            released = [self._released_usage.count(one) for one in released]
        if self._is_terminated or error is not None or guarded.questions:
            yield self._step(released, rewound, error=error)
        else:
            yield Step(released, rewound)

    def _restart_output(self, output: Output) -> Asking[None]:
        self.guarded.num_rewinds += 1
        output.is_finished = True
        yield from output.abort()
        self._outputs[output.index] = self._output(output.index, output.delivery)

    def _terminate(self, output: Output, verdict: terminate) -> Asking[list[Delta]]:
        """End the output, or all of the request (contract 3.3, 5.1)."""
        self._is_terminated = True
        ended = [output] if verdict.scope == "output" else [o for o in self._outputs if not o.is_finished]
        for one in ended:
            one.is_finished = True
        for one in ended:
            yield from one.abort()
        finish_reason = self.guarded.options.terminate_finish_reason
        return [delta for one in ended for delta in one.end(finish_reason, verdict.reason)]

    def _end_differing(self, output: Output) -> Asking[list[Delta]]:
        logger.warning("after a rewind, hooks released different text; the output ends")
        output.is_finished = False
        assert output.delivery is not None
        assert output.delivery.last_rewind is not None
        return self._terminate(output, terminate(output.delivery.last_rewind.instead.reason))

    def close(self) -> Machine:
        """Give every open stream its last call, aborted (contract 2.6). Nothing is released."""
        for output in self._outputs:
            output.is_finished = True
        for output in self._outputs:
            if output.streams:
                yield from output.abort()
        yield self._step([])

    def look_ahead(self) -> Asking[str | None]:
        """See `OpenGuard.look_ahead`."""
        (output,) = self._outputs
        return look_ahead(self.guarded, output.streams.get("content"))

    def held(self) -> Iterator[Held]:
        """The text that hooks hold, hooks in shadow mode left out."""
        for output in self._outputs:
            for stream in output.streams.values():
                for stage in stream.stages:
                    num_held = stage.held.num_characters
                    if num_held and not stage.hook.is_shadow:
                        yield Held(output.index, stream.channel, stage.hook.name, num_held)

    def _output(self, index: int, delivery: Delivery | None = None) -> Output:
        return Output(self.guarded, index, delivery or (Delivery() if self.may_rewind else None))

    def _step(
        self,
        released: list[Delta],
        rewound: Rewind | None = None,
        *,
        refused: str | None = None,
        error: Exception | None = None,
    ) -> Step:
        is_over = self._is_terminated and all(output.is_finished for output in self._outputs)
        questions, self.guarded.questions = self.guarded.questions, []
        return Step(released, rewound, is_over, refused, questions, error)
