"""The logits processors of a request, as data that any engine can read (contract 7.4). No torch.

A spec says which processor is wanted. An engine makes a fresh processor from it for every sequence, or
refuses it. In JSON, a spec is an object with its `kind` and its fields:

    {"kind": "named", "name": "thinking_budget", "params": {"thinking_budget": 512}}
    {"kind": "forced_token_sequence", "token_ids": [9906, 1917], "eos_token_id": 2}
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, ClassVar


class Stage(StrEnum):
    """A worker's part of a request that several workers share. Weir's own engine does all parts."""

    AGGREGATED = "aggregated"
    PREFILL = "prefill"
    DECODE = "decode"
    ENCODE = "encode"

    @property
    def generates(self) -> bool:
        """Whether the tokens drawn at this stage are the client's."""
        return self in (Stage.AGGREGATED, Stage.DECODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitsProcessorSpec:
    """One wanted processor, of one of the kinds below."""

    kind: ClassVar[str]
    generation_only: bool = True
    """False: it also runs in stages that do not generate."""

    def runs_in(self, stage: Stage) -> bool:
        return stage.generates or not self.generation_only

    def to_json(self) -> dict[str, Any]:
        """Raises `TypeError` for a spec that is not data."""
        default = {"generation_only": True}
        named = {f.name: getattr(self, f.name) for f in fields(self)}
        return {"kind": self.kind} | {name: v for name, v in named.items() if default.get(name) != v}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> "LogitsProcessorSpec":
        """Reads the result of `to_json`. Raises `ValueError` for an unknown kind, or fields of another."""
        named = dict(value)
        spec = _KINDS.get(named.pop("kind", None))
        if spec is None:
            raise ValueError(f"unknown kind of logits processor {value.get('kind')!r}")
        try:
            return spec(**named)
        except TypeError as error:
            raise ValueError(f"this is not a valid {spec.kind} logits processor: {error}") from error

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> Any:
        # So that a recording keeps the kind, and reads it again.
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(
            lambda value: value if isinstance(value, cls) else cls.from_json(value),
            serialization=core_schema.plain_serializer_function_ser_schema(cls.to_json),
        )


@dataclass(frozen=True, slots=True)
class ForcedTokenSequenceSpec(LogitsProcessorSpec):
    """These tokens, whatever the model says, and then the end of sequence."""

    kind = "forced_token_sequence"
    token_ids: tuple[int, ...]
    eos_token_id: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_ids", tuple(self.token_ids))
        if not all(type(i) is int and i >= 0 for i in (*self.token_ids, self.eos_token_id)):
            raise ValueError("token ids must be integers that are not negative")


@dataclass(frozen=True, slots=True)
class NamedProcessorSpec(LogitsProcessorSpec):
    """A processor that the server has registered, and its parameters (JSON values)."""

    kind = "named"
    name: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PolicyProcessorSpec(NamedProcessorSpec):
    """A registered processor that the server adds to a request. No request names it again."""

    kind = "policy"


@dataclass(frozen=True, slots=True)
class PythonProcessorSpec(LogitsProcessorSpec):
    """A processor of the row form (`api.LogitsProcessor`), which `factory` makes for every sequence. For
    callers in the engine's own process; never taken from a client."""

    kind = "python"
    factory: Callable[[], Any]

    def to_json(self) -> dict[str, Any]:
        raise TypeError("a logits processor that is a callable cannot leave its process")


_KINDS: dict[object, type[LogitsProcessorSpec]] = {
    spec.kind: spec for spec in (ForcedTokenSequenceSpec, NamedProcessorSpec, PolicyProcessorSpec)
}
