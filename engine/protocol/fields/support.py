"""An engine's treatment of each field of a request. The engine's refusals, the header that names ignored
fields, and `docs/fields.md` all read the same declaration."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from engine.protocol.fields.names import is_binding


class Treatment(StrEnum):
    HONOURED = "honoured"
    """The answer follows the field."""
    RELAYED = "relayed"
    """The upstream gets the field, and decides."""
    REFUSED = "refused"
    """The request is an error that names the field."""
    IGNORED = "ignored"
    """The field has no effect. A header of the answer names it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FieldSupport:
    """An engine's treatment of fields, by the names that engines use (`engine.protocol.fields.names`). What
    follows from one is kept by it: two are never equal."""

    honoured: frozenset[str] = frozenset()
    """On every endpoint."""
    honoured_in_chats: frozenset[str] = frozenset()
    honoured_in_completions: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)
    """Each field with the text that follows its name in the error message: `is not supported`."""
    ignored: frozenset[str] = frozenset()
    relayed: frozenset[str] = frozenset()
    """An upstream gets them, and decides."""
    values: Mapping[str, Collection[Any]] = field(default_factory=dict)
    """By an honoured field: the values that are known. Another value is treated as an unknown field is."""
    rest: Literal[Treatment.IGNORED, Treatment.REFUSED] = Treatment.IGNORED
    """All other fields. `REFUSED` refuses fields that change what the caller gets
    (`engine.protocol.fields.names.BINDING`), and ignores hints and unknown fields."""

    def treatment(self, name: str, endpoint: str) -> Treatment:
        own = self.honoured_in_completions if endpoint == "completions" else self.honoured_in_chats
        if name in self.honoured or name in own:
            return Treatment.HONOURED
        if name in self.refused:
            return Treatment.REFUSED
        if name in self.relayed:
            return Treatment.RELAYED
        is_refused = self.rest is Treatment.REFUSED and is_binding(name) and name not in self.ignored
        return Treatment.REFUSED if is_refused else Treatment.IGNORED

    def relayed_of(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the fields that an upstream gets."""
        return {name: value for name, value in fields.items() if name in self.relayed}
