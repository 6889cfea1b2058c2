"""A call of an upstream for one request: the values that an API gives to `UpstreamEngine`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.protocol import Delta

TranslateAlike = Callable[[bytes], Delta | None]
"""Translates bytes of a stream. None: they are not whole events like an earlier one."""


class Translator(Protocol):
    """Turns one request's stream to deltas. No I/O."""

    @property
    def is_finished(self) -> bool:
        """Whether every output has its finish reason."""

    @property
    def alike(self) -> TranslateAlike | None:
        """Translates whole events that differ from an earlier one in their text alone, without parsing all of
        their JSON. What it does not translate has no effect. None: `feed` has to translate the next event."""

    def feed(self, chunk: Mapping[str, Any], data: bytes | None = None) -> list[Delta]:
        """Translate an event (parsed JSON). `data`: its JSON, from which `alike` learns. Raises
        `EngineError` if the upstream says that it gave up, `TooMuchError` if an output is longer than it may
        be, and `LookupError`, `TypeError`, `AttributeError` or `ValueError` for an invalid event."""

    def finish(self, *, complete: bool) -> list[Delta]:
        """The stream has ended, with its last event if `complete`. Raises `EngineError` if it is cut off."""


@dataclass(frozen=True, slots=True)
class Call:
    """The body and the headers of one request to an upstream, and the reader of its answer."""

    path: str
    fields: dict[str, Any]
    """The body."""
    translator: Translator
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of this request alone."""
    is_whole: bool = False
    """Whether the answer is one JSON object, and no stream. The translator is fed the object as one event."""
