"""Says what is wrong with settings: every problem, each with its place, and with the name that was meant."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from engine.protocol.did_you_mean import did_you_mean as did_you_mean
from proxy.settings.elsewhere import option_here
from proxy.settings.groups import options_of, visible

_UNKNOWN = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
_CHOICES = frozenset({"literal_error", "enum"})

Place = tuple[str | int, ...]
"""The way to a value: names of options, and positions in lists."""


class Fault(NamedTuple):
    """Something that is wrong in a configuration, with its place, in words that quote no secret."""

    place: Place
    text: str

    def __str__(self) -> str:
        """Such as `policies.strict.hooks[1]: there is no such hook`."""
        way = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.place)
        return f"{way.removeprefix('.')}: {self.text}" if self.place else self.text


def problems(error: ValidationError, settings: type[BaseModel]) -> list[str]:
    """One line for each problem that the validation of `settings` found. It quotes no value.

    Such a line is `models.small.upstraem: there is no such option; did you mean 'upstream'?`.
    """
    return [
        _place(visible(one["loc"])) + message_of(one, settings) for one in error.errors(include_url=False)
    ]


def message_of(problem: ErrorDetails, settings: type[BaseModel]) -> str:
    """The fault, without its place and its value."""
    if problem["type"] in _UNKNOWN:
        *outer, name = visible(problem["loc"])
        name, known = str(name), _names_at(settings, outer)
        return "there is no such option" + (option_here(name, known) or did_you_mean(name, known))
    return problem["msg"].removeprefix("Value error, ") + choice_hint(problem)


def choice_hint(problem: ErrorDetails) -> str:
    """The end of a message about a value that is none of its choices. Empty for other problems."""
    if problem["type"] not in _CHOICES or not isinstance(problem["input"], str):
        return ""
    return did_you_mean(problem["input"], re.findall(r"'([^']*)'", problem["ctx"]["expected"]))


def _place(location: Sequence[int | str]) -> str:
    return ".".join(map(str, location)) + ": " if location else ""


def _names_at(annotation: Any, location: Sequence[int | str]) -> set[str]:
    """The names of the options that the value at `location` has, by the type of the outermost one."""
    types = [annotation]
    for step in location:
        types = [inner for one in types for inner in inner_types(one, step)]
    return {name for one in types for name in _types_in(one)}


def inner_types(annotation: Any, step: int | str) -> Iterator[Any]:
    """The types that the item `step` may have of a value of the type `annotation`."""
    options = _types_in(annotation)
    if options:
        yield from members(options[step]) if isinstance(step, str) and step in options else ()
    elif arguments := get_args(annotation):  # of a list the only type, of a mapping the type of its values
        yield from members(arguments[-1])


def members(annotation: Any) -> Iterator[Any]:
    """The types that a union joins. `Annotated` is left out."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from members(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for member in get_args(annotation):
            yield from members(member)
    else:
        yield annotation


def _types_in(annotation: Any) -> dict[str, Any]:
    """The options of some settings by name, each with its type."""
    if isinstance(annotation, type):
        if issubclass(annotation, BaseModel):
            return {name: option.field.annotation for name, option in options_of(annotation).items()}
        if is_dataclass(annotation):
            hints = get_type_hints(annotation, include_extras=True)
            return {field.name: hints[field.name] for field in fields(annotation)}
    return {}
