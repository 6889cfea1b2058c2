"""The options of logs and traces."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

LogFormat = Literal["text", "json"]


class TelemetryOptions(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe messages that are logged"""
    log_format: LogFormat = "text"
    """text: lines for people. json: one JSON object a line"""
    access_log: bool = True
    """Log one line for each request, except probes and /metrics"""
