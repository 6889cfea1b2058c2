"""Options: their names and help texts, and groups of them.

A file names the options of a group beside those of the settings that have the group.
A model's field `local` is a group: an operator sets `max_num_seqs` of the model, and sees no `local`.
"""

import ast
import inspect
import itertools
from collections.abc import Mapping, Sequence
from textwrap import dedent
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.fields import FieldInfo

_MARK = "\0"


def group(name: str) -> str:
    """The alias that makes a field a group. No file has such a name."""
    return _MARK + name


class Without(frozenset[str]):
    """Fields of a group that nobody can set where the group is."""


class Option(NamedTuple):
    field: FieldInfo
    settings: type[BaseModel]
    """The class whose field it is."""


def options_of(settings: type[BaseModel]) -> dict[str, Option]:
    """The options by the names that a file has for them, with those of the groups."""
    found: dict[str, Option] = {}
    for name, field in settings.model_fields.items():
        found |= _options_in(field) if field.alias else {name: Option(field, settings)}
    return found


def _options_in(field: FieldInfo) -> dict[str, Option]:
    assert isinstance(field.annotation, type)
    hidden = Without().union(*(note for note in field.metadata if isinstance(note, Without)))
    return {name: option for name, option in options_of(field.annotation).items() if name not in hidden}


def visible(location: Sequence[int | str]) -> tuple[int | str, ...]:
    """The way to a value as the file has it."""
    return tuple(step for step in location if not str(step).startswith(_MARK))


class Settings(BaseModel):
    """Settings that may have groups."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        rest, groups = dict(data), {}
        for field in cls.model_fields.values():
            if field.alias:
                names = _options_in(field).keys() & rest.keys()
                groups[field.alias] = {name: rest.pop(name) for name in names}
        return rest | groups


def help_texts(options: type[BaseModel]) -> dict[str, str]:
    """The help text of each option that has one, by the option's name: the docstring under its field, also in
    a base class. A field's `description` is its text if the text has to be computed.

    They are read when somebody asks for help: a start needs none, and reading them takes a tenth of a second.
    """
    fields = options.model_fields
    texts = {name: field.description for name, field in fields.items() if field.description is not None}
    for cls in reversed(options.__mro__):
        if fields.keys() & inspect.get_annotations(cls):
            texts |= {name: text for name, text in _docstrings(cls).items() if name in fields}
    return texts


def _docstrings(cls: type) -> dict[str, str]:
    (definition,) = ast.parse(dedent(inspect.getsource(cls))).body
    assert isinstance(definition, ast.ClassDef)
    texts: dict[str, str] = {}
    for field, below in itertools.pairwise(definition.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                texts[name] = inspect.cleandoc(text)
    return texts
