"""A logits processor as the sampler meets it: its entry on the server, and what one sequence has of it."""

from dataclasses import dataclass
from typing import Any

from engine.logits_processors.api import BatchLogitsProcessor, Kind, LogitsProcessor


@dataclass(frozen=True, slots=True, eq=False)
class ProcessorEntry:
    """A processor on the server, whichever way it got there."""

    name: str
    kind: Kind
    rank: int
    """Among processors of one kind, the lowest rank runs first."""
    batch: BatchLogitsProcessor | None = None
    """The processor's only instance, if it has the batch form."""


@dataclass(frozen=True, slots=True, eq=False)
class StartedProcessor:
    """A processor that one sequence has. Made before the sequence is admitted, and dropped with it."""

    entry: ProcessorEntry
    call: LogitsProcessor | None = None
    """In the row form: the sequence's own instance."""
    params: dict[str, Any] | None = None
    """In the batch form: the sequence's own dict, with its parameters and anything the processor adds."""
