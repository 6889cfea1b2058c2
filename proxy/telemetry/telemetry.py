"""Whether and how a server is traced: without a collector, nothing of OpenTelemetry is imported."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from engine.protocol.parts import how_to_install
from engine.protocol.tracing import NO_SPAN, Span
from proxy.settings.telemetry import TelemetryOptions
from proxy.telemetry.genai_metrics import GenAIMetric

if TYPE_CHECKING:
    from proxy.telemetry.otlp import OTLPTelemetry

logger = logging.getLogger("weir.proxy")


class NoTelemetry:
    """Has the methods of `OTLPTelemetry`, and sends nothing."""

    has_spans = False

    def begin_request(self, name: str, headers: Mapping[str, str]) -> Span:
        return NO_SPAN

    def start(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


def make_telemetry(
    options: TelemetryOptions,
    families: Callable[[], Iterable[Metric]],
    genai: Callable[[], Iterable[GenAIMetric]] = tuple,
) -> "OTLPTelemetry | NoTelemetry":
    """Raises `ValueError` if `--otlp-endpoint` is given and its libraries are not installed."""
    if options.otlp_url("traces") is None and options.otlp_url("metrics") is None:
        return NoTelemetry()
    try:
        from proxy.telemetry.otlp import OTLPTelemetry
    except ImportError as error:
        reason = f"OpenTelemetry is not installed: {how_to_install('otel')}"
        if options.otlp_endpoint is not None:
            raise ValueError(f"otlp_endpoint: {reason}") from error
        # The variables may be meant for other programs of this machine.
        logger.warning("OTEL_EXPORTER_OTLP_ENDPOINT is set, but nothing is sent. %s", reason)
        return NoTelemetry()
    return OTLPTelemetry(options, families, genai)
