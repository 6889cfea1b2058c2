"""A small OpenTelemetry collector that prints the spans that it gets: `python -m tools.collector`.

It takes OTLP over HTTP, as protobuf, and keeps nothing on disk. docs/observability.md shows how to use it.
"""

import argparse
import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Event:
    name: str
    attributes: dict[str, Any]


@dataclass
class Span:
    """A span as the collector got it. Times are nanoseconds since 1970; ids are hexadecimal."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    start: int
    end: int
    is_error: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]
    events: list[Event]


@dataclass
class Collector:
    """Keeps what it gets, the latest values of metrics only. `url` is its endpoint once it is started."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    """The latest data of each metric, by its name, as OTLP has it."""
    raw: deque[bytes] = field(default_factory=lambda: deque(maxlen=1000))
    """The bodies of the latest requests."""

    async def start(self, port: int = 0) -> Self:
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/v1/traces", self._take_spans)
        app.router.add_post("/v1/metrics", self._take_metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        host, bound, *_ = self._runner.addresses[0]
        self.url = f"http://{host}:{bound}"
        return self

    async def aclose(self) -> None:
        await self._runner.cleanup()

    async def _take_spans(self, http: web.Request) -> web.Response:
        self.raw.append(await http.read())
        self.show([*_spans_in(ExportTraceServiceRequest.FromString(self.raw[-1]))])
        return web.Response(content_type="application/x-protobuf")

    async def _take_metrics(self, http: web.Request) -> web.Response:
        self.raw.append(await http.read())
        for resource in ExportMetricsServiceRequest.FromString(self.raw[-1]).resource_metrics:
            for scope in resource.scope_metrics:
                self.metrics |= {metric.name: metric for metric in scope.metrics}
        return web.Response(content_type="application/x-protobuf")

    def show(self, spans: list[Span]) -> None:
        self.spans += spans


class PrintingCollector(Collector):
    """Prints each span of a server with the spans below it, once it comes."""

    def show(self, spans: list[Span]) -> None:
        super().show(spans)
        for span in spans:
            if span.kind == 2:  # a server's span; its children have ended before it
                print("\n".join(self._lines(span, 0)), flush=True)

    def _lines(self, span: Span, depth: int) -> Iterator[str]:
        values = " ".join(f"{name}={value}" for name, value in span.attributes.items())
        yield f"{'  ' * depth}{span.name}  {(span.end - span.start) / 1e6:.1f} ms  {values}"
        for event in span.events:
            values = " ".join(f"{name}={value}" for name, value in event.attributes.items())
            yield f"{'  ' * (depth + 1)}* {event.name}  {values}"
        children = [child for child in self.spans if child.parent_id == span.span_id]
        for child in sorted(children, key=lambda one: one.start):
            yield from self._lines(child, depth + 1)


def _spans_in(request: Any) -> Iterator[Span]:
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Span(
                    name=span.name,
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    kind=span.kind,
                    start=span.start_time_unix_nano,
                    end=span.end_time_unix_nano,
                    is_error=span.status.code == 2,
                    attributes=_attributes(span.attributes),
                    resource=_attributes(resource.resource.attributes),
                    events=[Event(event.name, _attributes(event.attributes)) for event in span.events],
                )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind)


async def _serve(port: int) -> None:
    collector = await PrintingCollector().start(port)
    print(f"The collector takes OTLP at {collector.url}", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await collector.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=4318)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
