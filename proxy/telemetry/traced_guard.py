"""A request's guard as spans: `admission` for hooks on the prompt, `guard` for hooks on the answer."""

from collections.abc import Iterable
from time import perf_counter

from engine.protocol import Delta, GenerationRequest
from engine.tracing import CURRENT_SPAN, NO_SPAN, NoSpan, Span, current, part
from hooks.pipeline.ask import HookReply, Step
from hooks.pipeline.decision import Held
from hooks.pipeline.open_guard import OpenGuard, PassThrough
from proxy.decisions.record import DecisionRecord
from proxy.telemetry.attributes import decision_attributes


def traced(guard: OpenGuard) -> OpenGuard:
    """The guard itself if it has no hooks, or if nobody traces its request."""
    span = CURRENT_SPAN.get()
    is_seen = not isinstance(span, NoSpan) and not isinstance(guard, PassThrough)
    return TracedGuard(guard, span) if is_seen else guard


def tell_span(record: DecisionRecord) -> None:
    """The decision is an event of the part of the request that is under way."""
    CURRENT_SPAN.get().event("weir.decision", decision_attributes(record))


class TracedGuard:
    """Implements `OpenGuard`. The span `guard` goes from the first delta to the end, and says how much of
    this time was the guard's. Hooks' decisions are events of it."""

    def __init__(self, guard: OpenGuard, request_span: Span) -> None:
        self._guard = guard
        self._request_span = request_span
        self._span = NO_SPAN
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
    def may_rewind(self) -> bool:
        return self._guard.may_rewind

    async def admit(self, shown: GenerationRequest) -> Step:
        with part("admission"):
            return await self._guard.admit(shown)

    def pass_through(self, delta: Delta) -> Delta | list[Delta] | HookReply | None:
        if not self._num_deltas:
            self._span = self._request_span.child("guard")
        self._num_deltas += 1
        started = perf_counter()
        with current(self._span):
            try:
                return self._guard.pass_through(delta)
            finally:
                self._seconds += perf_counter() - started

    async def feed(self, delta: Delta, first: HookReply | None = None) -> Step:
        started = perf_counter()
        with current(self._span):
            try:
                return await self._guard.feed(delta, first)
            finally:
                self._seconds += perf_counter() - started

    def held(self) -> Iterable[Held]:
        return self._guard.held()

    async def close(self) -> None:
        try:
            with current(self._span):
                await self._guard.close()
        finally:
            span, self._span = self._span, NO_SPAN  # it may be closed again
            span.set({"weir.guard.seconds": self._seconds, "weir.guard.num_deltas": self._num_deltas})
            span.end()
