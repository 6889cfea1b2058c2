"""Logits processors: what changes the logits of a request's tokens before one is drawn.

The names that the author of one needs; `api` says what one is. A server registers processors by name
(`registry`), a request names those that it wants, and the sampler runs them (`run`). What a request wants is
data, which other engines can read too: `engine.processor_specs`. `builtin` has those that ship.
"""

from engine.logits_processors.api import (
    AnyParams,
    BaseLogitsProcessor,
    BatchLogitsProcessor,
    Context,
    CustomLogitProcessor,
    LogitsProcessor,
    NoParams,
    Req,
    TokenId,
    TokenIds,
)
from engine.processor_specs import (
    ForcedTokenSequenceSpec,
    LogitsProcessorSpec,
    NamedProcessorSpec,
    PythonProcessorSpec,
    Stage,
)

__all__ = [
    "AnyParams",
    "BaseLogitsProcessor",
    "BatchLogitsProcessor",
    "Context",
    "CustomLogitProcessor",
    "ForcedTokenSequenceSpec",
    "LogitsProcessor",
    "LogitsProcessorSpec",
    "NamedProcessorSpec",
    "NoParams",
    "PythonProcessorSpec",
    "Req",
    "Stage",
    "TokenId",
    "TokenIds",
]
