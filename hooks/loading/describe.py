"""Describes the guards that have short names: their summaries, and their arguments with types and defaults.

The descriptions are read from the guards' source. No guard is imported, so a guard is described even if the
libraries that it needs are not installed.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from hooks.loading.loader import GUARDS

_ACTING_GUARD = "hooks.detect.acting_guard", "ActingGuard"
"""The class whose keyword arguments a guard takes as well if its `__init__` has `**options`."""
_IN_CONFIGURATIONS = {"Sequence": "list", "Mapping": "dict"}
"""The type by which a configuration gives a value of an abstract type."""
_LIMITS = {"ge": ">= {}", "gt": "> {}", "le": "<= {}", "lt": "< {}", "min_length": "at least {}"}


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a guard's `__init__`."""

    name: str
    type: str
    """The type as in Python, with aliases resolved and limits in parentheses: `list[str] (at least 1)`."""
    is_required: bool
    default: Any = None
    """The default as a configuration gives it. None: it is None, or the parameter has no default."""


@dataclass(frozen=True, slots=True)
class GuardDescription:
    name: str
    """The short name, which a configuration uses."""
    path: str
    """The import path of the class."""
    summary: str
    """The first paragraph of the class's docstring. It describes what the guard finds."""
    details: str
    """The docstring of `__init__`, which explains the guard's own arguments."""
    arguments: tuple[Argument, ...]
    """The guard's own arguments."""
    has_common_arguments: bool
    """Whether the guard takes `common_arguments()` as well."""


def guards() -> list[GuardDescription]:
    """The guards that have short names and are there. Raises `PartError` for a name of two packages."""
    found = {name: GUARDS.find(name) for name in GUARDS.names()}
    return [_describe(name, path) for name, path in sorted(found.items()) if path and _is_there(path)]


def common_arguments() -> list[Argument]:
    """The arguments that most guards have in common. They choose the action on a match."""
    module, name = _ACTING_GUARD
    signature = _init(_class(module, name)).args
    return [_argument(module, *one) for one in zip(signature.kwonlyargs, signature.kw_defaults, strict=True)]


def _is_there(path: str) -> bool:
    try:
        return find_spec(_split(path)[0]) is not None
    except ModuleNotFoundError:
        return False


def _split(path: str) -> tuple[str, str]:
    module, _, class_name = path.rpartition(":" if ":" in path else ".")
    return module, class_name


def _describe(short_name: str, path: str) -> GuardDescription:
    module, class_name = _split(path)
    cls = _class(module, class_name)
    init = _init(cls)
    return GuardDescription(
        short_name,
        path,
        " ".join((ast.get_docstring(cls) or "").partition("\n\n")[0].split()),
        ast.get_docstring(init) or "",
        tuple(_argument(module, *one) for one in _with_defaults(init.args)),
        init.args.kwarg is not None,
    )


def _with_defaults(signature: ast.arguments) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    """Each argument after `self`, with its default."""
    positional = signature.args[1:]
    required: list[ast.expr | None] = [None] * (len(positional) - len(signature.defaults))
    yield from zip(positional, [*required, *signature.defaults], strict=True)
    yield from zip(signature.kwonlyargs, signature.kw_defaults, strict=True)


def _argument(module: str, argument: ast.arg, default: ast.expr | None) -> Argument:
    type_text = _type(module, argument.annotation) if argument.annotation else "Any"
    return Argument(argument.arg, type_text, default is None, default and _value(module, default))


def _type(module: str, node: ast.expr) -> str:
    """The annotation `node` of `module` as a text."""
    match node:
        case ast.Name(id=name):
            found = _definition(module, name)
            return _type(*found) if found else _IN_CONFIGURATIONS.get(name, name)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return f"{_type(module, left)} | {_type(module, right)}"
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[inner, *notes])):
            return _type(module, inner) + "".join(map(_limits, notes))
        case ast.Subscript(value=ast.Name(id="Literal"), slice=values):
            members = values.elts if isinstance(values, ast.Tuple) else [values]
            return " | ".join(map(ast.unparse, members))
        case ast.Subscript(value=outer, slice=ast.Tuple(elts=inners)):
            return f"{_type(module, outer)}[{', '.join(_type(module, inner) for inner in inners)}]"
        case ast.Subscript(value=outer, slice=inner):
            return f"{_type(module, outer)}[{_type(module, inner)}]"
    return ast.unparse(node)


def _limits(note: ast.expr) -> str:
    """The limits that a `Field` of an `Annotated` sets."""
    keywords = note.keywords if isinstance(note, ast.Call) else []
    limits = [_LIMITS[one.arg].format(ast.unparse(one.value)) for one in keywords if one.arg in _LIMITS]
    return f" ({', '.join(limits)})" if limits else ""


def _value(module: str, node: ast.expr) -> Any:
    """The value of the default `node` of `module`; its source if it is more than names and literals."""
    match node:
        case ast.Name(id=name) if found := _definition(module, name):
            return _value(*found)
        case ast.Call(func=ast.Name(id="tuple" | "get_args"), args=[argument]):
            return list(_value(module, argument))
        case ast.Dict(keys=keys):  # a default uses only the keys of a table
            return [ast.literal_eval(key) for key in keys if key]
        case ast.Subscript(value=ast.Name(id="Literal"), slice=members):
            return ast.literal_eval(members)
        case ast.Tuple(elts=elements):
            return [_value(module, element) for element in elements]
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def _definition(module: str, name: str) -> tuple[str, ast.expr] | None:
    """The value that `module` gives to `name`, or imports from another module of Weir, and that module."""
    for node in _tree(module).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                return module, value
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if target == name:
                return module, value
            case ast.ImportFrom(module=str(origin), names=names) if origin.startswith(("hooks", "engine.")):
                if any(alias.name == name for alias in names):
                    return _definition(origin, name)
    return None


def _class(module: str, name: str) -> ast.ClassDef:
    return _class_in(_tree(module), name)


def _class_in(tree: ast.Module, name: str) -> ast.ClassDef:
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def _init(cls: ast.ClassDef) -> ast.FunctionDef:
    own = (n for n in cls.body if isinstance(n, ast.FunctionDef) and n.name == "__init__")
    return next(own, None) or _init(_class_in(ast.parse("class Any:\n def __init__(self): ..."), "Any"))


@lru_cache
def _tree(module: str) -> ast.Module:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ImportError(f"no module {module}")
    with open(spec.origin, encoding="utf-8") as file:
        return ast.parse(file.read())
