"""A request's guard as spans: `admission` for hooks on the prompt, `guard` for hooks on the answer."""

from collections.abc import Awaitable, Iterable
from functools import partial
from time import perf_counter

from engine.protocol import Delta, GenerationRequest
from engine.protocol.tracing import CURRENT_SPAN, NO_SPAN, Span, current, part
from hooks.api.decision import Decision, Held, Listener
from hooks.pipeline.ask import Step
from hooks.pipeline.open_guard import OpenGuard, PassThrough
from proxy.storage.records import DecisionRecord
from proxy.telemetry.attributes import decision_attributes, finding_attributes, guardrail_attributes


def trace_decision(record: DecisionRecord) -> None:
    """Make the decision an event of the current span, by our own names and by those of the conventions."""
    span = CURRENT_SPAN.get()
    span.event("weir.decision", decision_attributes(record))
    if (finding := finding_attributes(record)) is not None:
        span.event("gen_ai.security.finding", finding)


class GuardSpan:
    """The span `guard` of one traced request, from the first delta to the end. Nothing if its guard has no
    hooks."""

    def __init__(self) -> None:
        self._request_span = CURRENT_SPAN.get()
        self._span: Span | None = None

    def listener(self, listener: Listener | None) -> Listener | None:
        """A guard's listener, called with the span as the current one. To set it for each delta would cost
        too much."""
        return partial(self._hear, listener) if listener is not None else None

    def traced(self, guard: OpenGuard) -> OpenGuard:
        return TracedGuard(guard, self) if not isinstance(guard, PassThrough) else guard

    def begin(self) -> None:
        self._span = self._request_span.child("guard")
        self._span.set(guardrail_attributes("llm_output"))

    def end(self, seconds: float, num_deltas: int) -> None:
        span, self._span = self._span or NO_SPAN, NO_SPAN  # a guard may be closed again
        span.set({"weir.guard.seconds": seconds, "weir.guard.num_deltas": num_deltas})
        span.end()

    def _hear(self, listener: Listener, decision: Decision) -> None:
        with current(self._span or CURRENT_SPAN.get()):
            listener(decision)


class TracedGuard:
    """Implements `OpenGuard`. Counts the deltas, and the time that the guard takes for them."""

    def __init__(self, guard: OpenGuard, span: GuardSpan) -> None:
        self._guard = guard
        self._span = span
        self._seconds = 0.0
        self._num_deltas = 0

    @property
    def request(self) -> GenerationRequest:
        return self._guard.request

    @property
    def reads_prompts(self) -> bool:
        return self._guard.reads_prompts

    @property
    def decides_prompts(self) -> bool:
        return self._guard.decides_prompts

    @property
    def reads_media(self) -> bool:
        return self._guard.reads_media

    @property
    def withholds_alternatives(self) -> bool:
        return self._guard.withholds_alternatives

    @property
    def may_rewind(self) -> bool:
        return self._guard.may_rewind

    async def admit(self, shown: GenerationRequest) -> Step:
        with part("admission") as span:
            span.set(guardrail_attributes("llm_input"))
            return await self._guard.admit(shown)

    def feed(self, delta: Delta) -> Step | Awaitable[Step]:
        if not self._num_deltas:
            self._span.begin()
        self._num_deltas += 1
        started = perf_counter()
        try:
            step = self._guard.feed(delta)
        finally:
            self._seconds += perf_counter() - started
        return step if isinstance(step, Step) else self._timed(step)

    async def _timed(self, step: Awaitable[Step]) -> Step:
        started = perf_counter()
        try:
            return await step
        finally:
            self._seconds += perf_counter() - started

    async def look_ahead(self) -> str | None:
        return await self._guard.look_ahead()

    def held(self) -> Iterable[Held]:
        return self._guard.held()

    async def close(self) -> None:
        try:
            await self._guard.close()
        finally:
            self._span.end(self._seconds, self._num_deltas)
