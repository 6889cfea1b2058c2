"""Logits processors change the logits of a request's next token before it is drawn.

These are the names that the author of a processor needs; `api` explains them. A server registers processors
by name (`registry`), a request names those that it wants, and the sampler runs them (`run`). A request's
wishes are data, which other engines can read too: `engine.protocol.processor_specs`. `builtin` has the
processors that ship.
"""

from engine.protocol.processor_specs import (
    ForcedTokenSequenceSpec,
    LogitsProcessorSpec,
    NamedProcessorSpec,
    PythonProcessorSpec,
    Stage,
)
from engine.sampling.logits_processors.api import (
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
