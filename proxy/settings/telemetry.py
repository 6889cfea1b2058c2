"""The options of logs, traces and metrics that are sent out."""

import os
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

LogFormat = Literal["text", "json"]
Signal = Literal["traces", "metrics"]


class TelemetryOptions(BaseModel):
    model_config = ConfigDict(defer_build=True)

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe messages that are logged"""
    log_format: LogFormat = "text"
    """text: lines for people. json: one JSON object a line"""
    access_log: bool = True
    """Log one line for each request, except probes and /metrics"""
    decision_log: bool = False
    """Log one line for each decision of a hook, without the withheld text"""
    otlp_endpoint: Annotated[str, Field(pattern="^https?://")] | None = None
    """URL of an OpenTelemetry collector, such as http://127.0.0.1:4318. It gets traces and metrics over HTTP.
    The standard variables OTEL_... are read too"""

    def otlp_url(self, signal: Signal, environment: Mapping[str, str] = os.environ) -> str | None:
        """The collector's address for this signal; None: it is not sent. The variables and their meaning are
        OpenTelemetry's (https://opentelemetry.io/docs/specs/otel/protocol/exporter/)."""
        is_off = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
        exporter = environment.get(f"OTEL_{signal.upper()}_EXPORTER") or "otlp"
        if is_off or exporter != "otlp":
            return None
        own = environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
        base = self.otlp_endpoint or environment.get("OTEL_EXPORTER_OTLP_ENDPOINT")
        if own and not self.otlp_endpoint:
            return own
        return f"{base.rstrip('/')}/v1/{signal}" if base else None
