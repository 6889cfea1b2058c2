"""Checks a hook's arguments against the annotations of its `__init__`: names, types and values.

Arguments come from configurations. There "no" is a text, which counts as true, and a misspelt name makes a
guard that guards nothing. No value is converted: every value is right as it is, or the hook is not built.
"""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Unpack, get_args, get_origin, get_type_hints

import orjson
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import ErrorDetails, SchemaError

from engine.protocol.did_you_mean import did_you_mean

Adapter = TypeAdapter[Any]
_ANYTHING = Adapter(Any)
_CONFIG = ConfigDict(strict=True, arbitrary_types_allowed=True)


class ArgumentError(ValueError):
    """Names each argument that is wrong, and no value."""


def check_arguments(init: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Raise `ArgumentError` for arguments that the annotations of `init` do not allow.

    The call itself reports missing arguments. An argument whose annotation cannot be looked up passes.
    """
    named, of_any_name = _adapters(init)
    problems: list[str] = []
    for name, value in arguments.items():
        adapter = named.get(name, of_any_name)
        problems += [_unexpected(name, named)] if adapter is None else _problems(name, value, adapter)
    if problems:
        raise ArgumentError("; ".join(problems))


def _unexpected(name: str, known: Collection[str]) -> str:
    hint = did_you_mean(name, known) or f"; there are {', '.join(known) or 'none'}"
    return f"unexpected keyword argument {name!r}{hint}"


@lru_cache(maxsize=256)
def _adapters(init: Callable[..., Any]) -> tuple[Mapping[str, Adapter], Adapter | None]:
    """The adapters of the named arguments, and the one for any other name; None: no other name is allowed."""
    hints = _hints(init)
    named: dict[str, Adapter] = {}
    of_any_name: Adapter | None = None
    for parameter in list(inspect.signature(init).parameters.values())[1:]:
        hint = hints.get(parameter.name, Any)
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            named[parameter.name] = _adapter(hint)
        elif get_origin(hint) is Unpack:
            named |= {name: _adapter(one) for name, one in _hints(*get_args(hint)).items()}
        else:
            of_any_name = _adapter(hint)
    return named, of_any_name


def _hints(annotated: Any) -> dict[str, Any]:
    try:
        return get_type_hints(annotated, include_extras=True)
    except (NameError, TypeError, AttributeError):  # the names are imported for type checkers only
        return {}


def _adapter(hint: Any) -> Adapter:
    if hint is not Any:
        for config in (_CONFIG, None):  # a class with a configuration of its own takes no other
            with suppress(PydanticUserError, PydanticUndefinedAnnotation, SchemaError):
                return TypeAdapter(hint, config=config)
    return _ANYTHING


def _problems(name: str, value: Any, adapter: Adapter) -> Iterator[str]:
    """The value's errors, one text for each place. For a union, only its best matching members count."""
    try:
        _validate(adapter, value)
    except ValidationError as error:
        found = [(*_place(name, value, one["loc"]), _message(one)) for one in error.errors(include_url=False)]
        deepest = max(depth for depth, *_ in found)
        places: dict[str, dict[str, None]] = {}  # each message once
        for depth, place, message in found:
            if depth == deepest:
                places.setdefault(place, {})[message] = None
        for place, messages in places.items():
            yield f"{place}: {' or '.join(messages)}"


def _message(error: ErrorDetails) -> str:
    if error["type"] == "missing":  # the place is the object that lacks the item
        return f"{error['msg']}: {error['loc'][-1]!r}"
    return error["msg"].removeprefix("Value error, ")


def _validate(adapter: Adapter, value: Any) -> None:
    if adapter is _ANYTHING:
        return
    written = _as_json(value)
    if written is None:
        adapter.validate_python(value, strict=True)
    else:
        adapter.validate_json(written, strict=True)


def _as_json(value: Any) -> bytes | None:
    """The value as a configuration writes it (a tuple as a list, a path as a text); None if it cannot."""
    try:
        written = orjson.dumps(value)
    except TypeError:
        return None
    return written if orjson.loads(written) == value else None


def _place(name: str, value: Any, location: Sequence[str | int]) -> tuple[int, str]:
    """The depth of the location, and its name, such as `limits.most` or `words[1]`. Steps that the value does
    not have are left out: they name a union's member, or a missing item."""
    depth = 0
    for step in location:
        if isinstance(value, Mapping) and step in value:
            depth, name, value = depth + 1, f"{name}.{step}", value[step]
        elif isinstance(step, int) and isinstance(value, Sequence) and step < len(value):
            depth, name, value = depth + 1, f"{name}[{step}]", value[step]
    return depth, name
