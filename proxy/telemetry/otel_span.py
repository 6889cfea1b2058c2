"""Spans of OpenTelemetry's SDK behind the protocol of `engine.protocol.tracing`."""

import asyncio
import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Span as SDKSpan
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from engine.protocol import ShutdownError
from engine.protocol.tracing import NoSpan, Span, Value

MAX_TEXT = 1024
"""Characters of an attribute."""

_PROPAGATOR = TraceContextTextMapPropagator()
_NO_FAULT = (GeneratorExit, asyncio.CancelledError, ConnectionError, ShutdownError)
"""Somebody ended the work: mostly the client, or this server, which stops."""


class OTelSpan:
    """A span that is recorded. Implements `engine.protocol.tracing.Span`."""

    def __init__(self, tracer: Tracer, span: SDKSpan, offset: int) -> None:
        """`offset`: nanoseconds between 1970 and the zero of `time.perf_counter`. A trace has one offset, so
        that a clock that is set meanwhile moves no span."""
        self._tracer = tracer
        self._span = span
        self._offset = offset

    @cached_property
    def headers(self) -> Mapping[str, str]:
        headers: dict[str, str] = {}
        _PROPAGATOR.inject(headers, set_span_in_context(self._span, Context()))
        return headers

    def child(self, name: str, *, is_remote: bool = False, began: float | None = None) -> "OTelSpan":
        span = self._tracer.start_span(
            name,
            set_span_in_context(self._span, Context()),
            SpanKind.CLIENT if is_remote else SpanKind.INTERNAL,
            start_time=self._nanoseconds(began),
        )
        return OTelSpan(self._tracer, span, self._offset)

    def set(self, attributes: Mapping[str, Value]) -> None:
        self._span.set_attributes(_clean(attributes))

    def event(self, name: str, attributes: Mapping[str, Value]) -> None:
        self._span.add_event(name, _clean(attributes), self._nanoseconds(None))

    def end(self, error: BaseException | str | None = None, *, ended: float | None = None) -> None:
        if not self._span.is_recording():
            return  # it has ended
        if error is not None and not isinstance(error, _NO_FAULT):
            # Only the type: a message may have text of the prompt or the answer.
            name = error if isinstance(error, str) else type(error).__name__
            self._span.set_attribute("error.type", name)
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end(self._nanoseconds(ended))

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def _nanoseconds(self, at: float | None) -> int:
        return self._offset + (time.perf_counter_ns() if at is None else int(at * 1e9))


def _clean(attributes: Mapping[str, Value]) -> dict[str, Value]:
    """The value, in a form that OTLP can express. One other value would lose a whole batch of spans."""
    clean: dict[str, Value] = {}
    for name, value in attributes.items():
        if isinstance(value, str):
            clean[name] = value[:MAX_TEXT].encode(errors="replace").decode()
        elif not isinstance(value, int) or -(2**63) <= value < 2**63:
            clean[name] = value
    return clean


def server_span(tracer: Tracer, name: str, headers: Mapping[str, Any]) -> Span:
    """The span of a request that a client sent with `headers`. It belongs to the client's trace, if the
    headers name one. If the request is not sampled, the span is a `NoSpan` whose headers say so."""
    given = {key: headers[key] for key in ("traceparent", "tracestate") if key in headers}
    offset = time.time_ns() - time.perf_counter_ns()
    span = tracer.start_span(
        name, _PROPAGATOR.extract(given, Context()), SpanKind.SERVER, start_time=time.time_ns()
    )
    found = OTelSpan(tracer, span, offset)
    return found if span.is_recording() else NoSpan(found.headers)
