"""Options that hold for every hook of a pipeline."""

from dataclasses import dataclass
from typing import Literal

from engine.protocol import FinishReason
from hooks.loading.loader import LOAD_TIMEOUT


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    finish_reason: FinishReason = "content_filter"
    """The finish reason of an output that a hook ended; `stop` is TensorRT-LLM's (contract 3.3)."""
    hook_timeout: float = 10.0
    """Seconds that one call of a hook may take (contract 4.1)."""
    hook_load_timeout: float = LOAD_TIMEOUT
    """Seconds that it may take to import and build a hook."""
    rewritten_tokens: Literal["withhold", "keep"] = "withhold"
    """Whether the tokens of rewritten text pass, as TensorRT-LLM lets them (contract 3.6)."""
    usage: Literal["generated", "released"] = "generated"
    """Which tokens `Usage` counts (contract 6.1)."""
    max_rewinds: int = 8
    """How often hooks may take one request's outputs back; after that, a rewind ends the request."""
