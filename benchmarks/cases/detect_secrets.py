"""The test strings of detect-secrets' search for words such as `password`, read from a checkout."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.cases.case import Case, with_value


def cases(checkout: Path) -> Iterator[Case]:
    """Return a case of each line, once."""
    tree = ast.parse((checkout / "tests/plugins/keyword_test.py").read_text())
    values: dict[str, str] = {}
    seen: set[str] = set()
    for node in tree.body:
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
            continue
        if isinstance(node.value, ast.Constant):
            values[node.targets[0].id] = str(node.value.value)
        for element in node.value.elts if isinstance(node.value, ast.List) else ():
            line, secret = _row(element, values)
            if line is None or line in seen:
                continue
            seen.add(line)
            if secret is not None and secret in line:
                yield with_value("after a word, detect-secrets", "KEYWORD", line, secret)
            elif secret is None:
                yield Case("no value, secrets", "KEYWORD", line)


def _row(element: ast.AST, values: dict[str, str]) -> tuple[str | None, str | None]:
    if not (isinstance(element, ast.Tuple) and len(element.elts) == 2):
        return None, None
    return _string(element.elts[0], values), _string(element.elts[1], values)


def _string(node: ast.AST, values: dict[str, str]) -> str | None:
    """A literal, a variable, or a literal's `format` of a variable."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        return values.get(node.id)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        form = _string(node.func.value, values)
        given: list[Any] = [_string(argument, values) for argument in node.args]
        return form.format(*given) if form is not None and None not in given else None
    return None
