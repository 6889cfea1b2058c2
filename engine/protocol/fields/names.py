"""The names of a request's fields, and what follows from `engine.protocol.fields.table` for each.

An engine gets a request of any endpoint under the names of a chat's fields. `engine_name` and `caller_name`
translate between them and the endpoint's own names.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from engine.protocol.fields.table import EMPTY, FIELDS, Relay

ENGINE_NAMES: Mapping[str, Mapping[str, str]] = {
    "chat": {"top_logprobs": "logprobs"},
    "responses": {
        "max_output_tokens": "max_tokens",
        "top_logprobs": "logprobs",
        "text.format": "response_format",
        "text.verbosity": "verbosity",
        "reasoning.effort": "reasoning_effort",
    },
    "messages": {
        "stop_sequences": "stop",
        "output_config.format": "response_format",
        "output_config.effort": "reasoning_effort",
    },
}
"""By endpoint: an engine's name for a field of the endpoint. Fields that are not here keep their name, except
`LENGTH_LIMITS`."""

BINDING = frozenset(field.name for field in FIELDS.values() if field.binds)
"""Fields that change what the caller gets. An engine of its own honours or refuses each, and all whose name
begins with `guided_`."""

SCHEMAS = frozenset(field.name for field in FIELDS.values() if field.is_schema)
"""Fields that hold a schema, a grammar or a pattern."""

HINTS = FIELDS.keys() - BINDING
"""Known fields that an engine may ignore: they change no text, or every client of some kind sends them."""

DEFAULTS: Mapping[str, Any] = {
    field.name: field.default for field in FIELDS.values() if field.default is not EMPTY
}
"""Values that ask for nothing. For all other fields: false, an empty text, an empty list or object."""

LENGTH_LIMITS = tuple(field.name for field in FIELDS.values() if field.limit == "max_tokens")
"""The names of the limit of an output's tokens. `max_tokens` is the first."""

RELAYED = frozenset(field.name for field in FIELDS.values() if field.relay is Relay.BY_DEFAULT)
"""Fields that an upstream of OpenAI's API gets, unless the service answers them itself."""


def engine_name(endpoint: str, name: str) -> str:
    """An engine's name for a field of the endpoint. A part of an object has a dotted name: `text.format`."""
    limit = FIELDS[name].limit if name in FIELDS else None
    return limit or ENGINE_NAMES.get(endpoint, {}).get(name, name)


@cache
def defaults_of(endpoint: str) -> Mapping[str, Any]:
    """`DEFAULTS` by the endpoint's own names."""
    names = FIELDS.keys() | ENGINE_NAMES.get(endpoint, {}).keys()
    return {name: DEFAULTS[own] for name in names if (own := engine_name(endpoint, name)) in DEFAULTS}


def caller_name(endpoint: str, name: str) -> str:
    """The endpoint's name for a field of an engine. In a chat, all names are the same."""
    names = {} if endpoint == "chat" else ENGINE_NAMES.get(endpoint, {})
    return next((own for own, engines in names.items() if engines == name), name)


def is_binding(name: str) -> bool:
    """Whether the field changes what the caller gets."""
    return name in BINDING or name.startswith("guided_")


def is_known(name: str) -> bool:
    """Whether `is_neutral` knows which values of the field ask for nothing."""
    return name in FIELDS or is_binding(name)


def is_neutral(name: str, value: Any) -> bool:
    """Whether the value asks for nothing: a null, or the field's default."""
    if value is None:
        return True
    if name in DEFAULTS:
        return bool(value == DEFAULTS[name]) and isinstance(value, bool) is isinstance(DEFAULTS[name], bool)
    if name.startswith("guided_"):  # an empty schema asks for JSON
        return value is False
    return value is False or (isinstance(value, str | list | tuple | dict) and not value)
