"""Which logits processors a request has, as data that any engine can read (contract 7.4). No torch.

A spec says what is wanted; an engine realises it, with a fresh processor for every sequence, or refuses it.
As JSON it is an object with its `kind` and its fields:

    {"kind": "named", "name": "thinking_budget", "params": {"thinking_budget": 512}}
    {"kind": "forced_token_sequence", "token_ids": [9906, 1917], "eos_token_id": 2}
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, ClassVar


class Stage(StrEnum):
    """What a worker does of a request, where several share it. Weir's own engine does all of it."""

    AGGREGATED = "aggregated"
    PREFILL = "prefill"
    DECODE = "decode"
    ENCODE = "encode"

    @property
    def generates(self) -> bool:
        """Whether what is drawn there is what a client gets."""
        return self in (Stage.AGGREGATED, Stage.DECODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitsProcessorSpec:
    """One processor that is wanted: one of the kinds below."""

    kind: ClassVar[str]
    generation_only: bool = True
    """False: it runs in a stage that does not generate, too."""

    def runs_in(self, stage: Stage) -> bool:
        return stage.generates or not self.generation_only

    def to_json(self) -> dict[str, Any]:
        """Raises `TypeError` for a spec that is no data."""
        default = {"generation_only": True}
        named = {f.name: getattr(self, f.name) for f in fields(self)}
        return {"kind": self.kind} | {name: v for name, v in named.items() if default.get(name) != v}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> "LogitsProcessorSpec":
        """What `to_json` gave. Raises `ValueError` for an unknown kind, or fields that are not the kind's."""
        named = dict(value)
        spec = _KINDS.get(named.pop("kind", None))
        if spec is None:
            raise ValueError(f"there is no kind of logits processor {value.get('kind')!r}")
        try:
            return spec(**named)
        except TypeError as error:
            raise ValueError(f"this is no {spec.kind} logits processor: {error}") from error

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> Any:
        # So that a recording keeps the kind, and knows it again.
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(
            lambda value: value if isinstance(value, cls) else cls.from_json(value),
            serialization=core_schema.plain_serializer_function_ser_schema(cls.to_json),
        )


@dataclass(frozen=True, slots=True)
class ForcedTokenSequenceSpec(LogitsProcessorSpec):
    """These tokens, whatever the model says, and the end of sequence from then on."""

    kind = "forced_token_sequence"
    token_ids: tuple[int, ...]
    eos_token_id: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_ids", tuple(self.token_ids))
        if not all(type(i) is int and i >= 0 for i in (*self.token_ids, self.eos_token_id)):
            raise ValueError("token ids are integers that are not negative")


@dataclass(frozen=True, slots=True)
class NamedProcessorSpec(LogitsProcessorSpec):
    """A processor that the server has registered, with what a request may set of it (JSON values)."""

    kind = "named"
    name: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PythonProcessorSpec(LogitsProcessorSpec):
    """Whatever `factory` makes, called once for every sequence: something that one row at a time is called
    with, as in `api.LogitsProcessor`. For callers in the engine's own process; never taken from a client."""

    kind = "python"
    factory: Callable[[], Any]

    def to_json(self) -> dict[str, Any]:
        raise TypeError("a logits processor that is a callable cannot leave its process")


_KINDS: dict[object, type[LogitsProcessorSpec]] = {
    spec.kind: spec for spec in (ForcedTokenSequenceSpec, NamedProcessorSpec)
}
