"""docs/architecture.md names functions that exist. A value passes no more of them than the page promises."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()
WAYS = [
    re.findall(r"^\| `((?:proxy|hooks)\.[\w.]+)` \|", part, re.MULTILINE)
    for part in PAGE.split("From the ")[1:]
]


def found(name: str) -> object:
    """The function with this dotted name."""
    module, names = name, []
    while True:
        try:
            value: object = importlib.import_module(module)
            break
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            names.insert(0, last)
    for one in names:
        value = getattr(value, one)
    return value


@pytest.mark.parametrize("name", [name for way in WAYS for name in way])
def test_the_page_names_functions_that_exist(name: str) -> None:
    assert inspect.isfunction(found(name))


@pytest.mark.parametrize(("way", "num_functions", "num_files"), [(0, 10, 6), (1, 10, 8)])
def test_a_value_passes_few_functions_in_few_files(way: int, num_functions: int, num_files: int) -> None:
    functions = [found(name) for name in WAYS[way]]
    assert 3 < len(functions) <= num_functions
    assert len({inspect.getsourcefile(inspect.unwrap(function)) for function in functions}) <= num_files  # type: ignore[arg-type]


def test_the_page_is_short() -> None:
    assert len(PAGE.splitlines()) <= 80
