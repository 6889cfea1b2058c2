"""A logits processor as the sampler meets it: its entry, its part of a sequence, the log of its failure."""

import logging
import traceback
from dataclasses import dataclass
from typing import Any

from engine.sampling.logits_processors.api import BatchLogitsProcessor, Kind, LogitsProcessor

logger = logging.getLogger("weir.engine")


@dataclass(frozen=True, slots=True, eq=False)
class ProcessorEntry:
    """A processor on the server, whichever way it got there."""

    name: str
    kind: Kind
    rank: int
    """Among processors of one kind, the lowest rank runs first."""
    batch: BatchLogitsProcessor | None = None
    """The processor's only instance, if it has the batch form."""
    field: str | None = None
    """The field of a request that asks for it, if that is one of vLLM's own (`registry.LIMITS`)."""
    is_callers: bool = False
    """Whether the caller says which tokens it masks: the fields `LIMITS`, and those for grammars."""


@dataclass(frozen=True, slots=True, eq=False)
class StartedProcessor:
    """A processor that one sequence has. Made before the sequence is admitted, and dropped with it."""

    entry: ProcessorEntry
    call: LogitsProcessor | None = None
    """In the row form: the sequence's own instance."""
    params: dict[str, Any] | None = None
    """In the batch form: the sequence's own dict, with its parameters and anything the processor adds."""


class BadLogitsError(ValueError):
    """A processor left logits that cannot be used. The message is written here, and quotes no text."""


def log_failure(name: str, what: str, error: BaseException) -> None:
    """Log the error's type and place only. The message and the traceback may quote withheld text, so they are
    logged at level DEBUG alone."""
    logger.error("logits processor %s %s: %s", name, what, _described(error))
    logger.debug("logits processor %s %s", name, what, exc_info=error)


def _described(error: BaseException) -> str:
    if isinstance(error, BadLogitsError):
        return str(error)
    kind, frames = type(error).__name__, traceback.extract_tb(error.__traceback__, -1)
    return f"{kind} at {frames[0].filename}:{frames[0].lineno}" if frames else kind
