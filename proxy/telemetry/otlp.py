"""Sends spans and metrics to a collector (OTLP over HTTP). Needs the extra `otel`.

The SDK's threads send. When the collector is slow or away, spans wait in a queue of bounded length and the
oldest are dropped; of metrics only the latest values are sent. The event loop waits for neither.
"""

import asyncio
import contextlib
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Tracer
from prometheus_client.core import Metric

from engine.protocol.tracing import NO_SPAN, Span
from proxy import __version__
from proxy.settings.telemetry import TelemetryOptions
from proxy.telemetry.genai_metrics import GenAIMetric
from proxy.telemetry.otel_span import server_span
from proxy.telemetry.otlp_metrics import metrics_data

logger = logging.getLogger("weir.proxy")

DEFAULT_INTERVAL = 60_000
"""Milliseconds between two times that metrics are sent, if OTEL_METRIC_EXPORT_INTERVAL says nothing else."""


class OTLPTelemetry:
    """Traces requests, and sends the metrics of one server."""

    def __init__(
        self,
        options: TelemetryOptions,
        families: Callable[[], Iterable[Metric]],
        genai: Callable[[], Iterable[GenAIMetric]] = tuple,
    ) -> None:
        """`families`, `genai`: the metrics as they are now. They are called on the event loop."""
        self._families = families
        self._genai = genai
        self._began = time.time_ns()
        self._resource = _resource()
        self._provider: TracerProvider | None = None
        self._tracer: Tracer | None = None
        if (url := options.otlp_url("traces")) is not None:
            self.trace_to(BatchSpanProcessor(OTLPSpanExporter(url)))
        url = options.otlp_url("metrics")
        self._exporter = None if url is None else OTLPMetricExporter(url)
        self._sending: asyncio.Task[None] | None = None

    def trace_to(self, processor: Any) -> None:
        """Give all spans to a processor of OpenTelemetry's SDK."""
        # The sampler is the SDK's: it reads OTEL_TRACES_SAMPLER.
        self._provider = TracerProvider(resource=self._resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("weir", __version__)

    @property
    def has_spans(self) -> bool:
        """Whether requests are traced."""
        return self._tracer is not None

    def begin_request(self, name: str, headers: Mapping[str, str]) -> Span:
        """The span of an HTTP request with these headers."""
        return NO_SPAN if self._tracer is None else server_span(self._tracer, name, headers)

    def start(self) -> None:
        """Begin to send metrics. Needs the running event loop."""
        if self._exporter is not None:
            self._sending = asyncio.get_running_loop().create_task(self._send_often())

    async def aclose(self) -> None:
        """Send the rest. Cancel this if the collector does not take it in time."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
            await self._send()
        if self._provider is not None:
            await _on_thread(self._provider.shutdown)

    async def _send_often(self) -> None:
        interval = int(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL") or DEFAULT_INTERVAL) / 1000
        while True:
            await asyncio.sleep(interval)
            await self._send()

    async def _send(self) -> None:
        exporter = self._exporter
        assert exporter is not None
        data = metrics_data(self._families(), self._genai(), self._resource, self._began, time.time_ns())
        await _on_thread(lambda: exporter.export(data))


def _resource() -> Resource:
    """Names this process. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win over the name `weir`."""
    given = Resource.create()
    own = {"service.version": __version__, "service.instance.id": str(uuid.uuid4())}
    if str(given.attributes["service.name"]).startswith("unknown_service"):
        own["service.name"] = "weir"
    return given.merge(Resource(own))


async def _on_thread(work: Callable[[], Any]) -> None:
    """Do the work on a thread that keeps no process alive."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def run() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the exporter failed, and the server goes on
            logger.warning("the collector did not take the data (%s)", type(error).__name__)
        finally:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(done.set)

    threading.Thread(target=run, name="otlp", daemon=True).start()
    await done.wait()
