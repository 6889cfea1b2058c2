"""The help texts of options: the docstring under each field of a class that defines options.

They are read when somebody asks for help: a start needs none, and reading them takes a tenth of a second.
"""

import ast
import inspect
import itertools
from textwrap import dedent

from pydantic import BaseModel


def help_texts(options: type[BaseModel]) -> dict[str, str]:
    """The help text of each option that has one, by the option's name, those of base classes included. A
    field's `description` is its text if the text has to be computed."""
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
