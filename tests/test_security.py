"""docs/security.md names the tests that show its promises, and they are there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text()
SECTION = PAGE.split("## Which test shows it\n")[1].split("\n## ")[0]
ROWS = re.findall(r"^\| (?!promise |-)(.+?) \| (.+) \|$", SECTION, re.MULTILINE)
NAMED = sorted(set(re.findall(r"`(tests/\S+\.py)::(\w+)`", SECTION)))


def functions_in(source: str) -> set[str]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return {one.name for one in ast.parse(source).body if isinstance(one, kinds)}


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_the_page_names_tests_that_exist(file: str, name: str) -> None:
    assert name in functions_in((ROOT / file).read_text())


def test_every_row_names_a_test() -> None:
    assert len(ROWS) > 12
    assert [promise for promise, tests in ROWS if "::test_" not in tests] == []
