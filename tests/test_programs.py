"""Benchmarks and tools that no test runs still name only what the project has. Read off the files, because to
import them all takes many seconds."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = {"benchmarks", "engine", "hooks", "proxy", "tools"}
PROGRAMS = sorted(file for folder in ("benchmarks", "tools") for file in (ROOT / folder).rglob("*.py"))


@cache
def names_in(module: str) -> frozenset[str]:
    """The names that the module sets, and the modules of a package. Empty if there is no such module."""
    folder = ROOT / module.replace(".", "/")
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    names = {path.stem for path in folder.glob("*")}
    for node in ast.walk(ast.parse(file.read_text() if file.exists() else "")):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return frozenset(names)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_program_imports_names_that_are_there(program: Path) -> None:
    for node in ast.walk(ast.parse(program.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OURS:
            assert {alias.name for alias in node.names} <= names_in(node.module), node.module
