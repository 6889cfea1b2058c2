"""The guards that ship are described from their source."""

import re
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, cast

import pytest

from engine.protocol.import_path import find_class
from hooks.loading.arguments import ArgumentError, check_arguments
from hooks.loading.describe import Argument, GuardDescription, common_arguments, guards
from hooks.loading.loader import SHORT_NAMES

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def mode() -> str:
    """No hook runs here, so each test runs once."""
    return "both"


def guard(name: str) -> GuardDescription:
    return next(one for one in guards() if one.name == name)


def arguments(name: str) -> dict[str, Argument]:
    return {argument.name: argument for argument in guard(name).arguments}


def test_every_guard_that_ships_is_described_in_one_line() -> None:
    assert {one.name: one.path for one in guards()} == SHORT_NAMES
    assert all(one.summary.endswith(".") and len(one.summary) < 110 for one in guards())


def test_arguments_have_their_types_and_defaults() -> None:
    classifier = arguments("classifier")
    assert classifier["model"] == Argument("model", "str | Path", is_required=True)
    assert classifier["labels"] == Argument("labels", "list[str] (at least 1) | None", False, None)
    assert classifier["threshold"] == Argument("threshold", "float (> 0, <= 1)", False, 0.5)
    assert classifier["unit"].type == "'characters' | 'tokens' | 'sentences'"
    assert arguments("pii")["locales"].default is None
    assert arguments("phrases")["fold"].default[0] == "case"


def test_guards_that_act_on_matches_have_arguments_in_common() -> None:
    common = {argument.name: argument for argument in common_arguments()}
    assert common["action"] == Argument(
        "action", "'redact' | 'suppress' | 'terminate' | 'rewind' | 'suspect'", False, "redact"
    )
    assert not any(argument.is_required for argument in common.values())


@pytest.mark.parametrize("one", guards(), ids=lambda one: one.name)
def test_a_guard_has_the_arguments_in_common_if_it_takes_them(one: GuardDescription) -> None:
    if one.name == "presidio":
        pytest.importorskip("presidio_analyzer")
    checking: AbstractContextManager[object] = nullcontext()
    if not one.has_common_arguments:
        checking = pytest.raises(ArgumentError, match="unexpected keyword argument 'alternatives'")
    with checking:
        check_arguments(cast(Any, find_class(one.path)).__init__, {"alternatives": "keep"})


def test_the_page_names_the_guards_that_have_only_arguments_of_their_own() -> None:
    page = (ROOT / "docs" / "guards.md").read_text()
    introduced = r"^All guards but (.*) take these arguments as well as their own:$"
    (named,) = re.findall(introduced, page, re.MULTILINE)
    assert {*re.findall(r"`(\w+)`", named)} == {one.name for one in guards() if not one.has_common_arguments}


@pytest.mark.parametrize("library", ["regex", "torch", "presidio_analyzer", "ahocorasick", "phonenumbers"])
def test_guards_are_described_without_the_libraries_that_they_need(library: str) -> None:
    code = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "from hooks.loading.describe import common_arguments, guards\n"
        "print(len(guards()), len(common_arguments()))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [str(len(SHORT_NAMES)), str(len(common_arguments()))]
