"""What a server says that cannot start because a library is missing."""

import subprocess
import sys
from pathlib import Path

import pytest

from engine.protocol.parts import how_to_install
from tests.serving import ROOT

EXTRA = how_to_install("engine")
GENERATES = ("async def start(self, models):", "await models.generator('weir-demo-guard')")
CLASSIFIES = ("async def start(self, models):", "await models.classifier('weir-demo-guard')")


def start_without(library: str, *options: str) -> str:
    """The last line that the server says, which does not start."""
    blocked = (sys.executable, "-m", "tests.blocked", library)
    run = subprocess.run(
        [*blocked, "proxy", "serve", "--port", "0", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stderr
    return run.stderr.splitlines()[-1]


@pytest.mark.parametrize("library", ["torch", "transformers"])
def test_the_in_process_engine_says_which_extra_has_its_library(library: str) -> None:
    said = start_without(library, "--engine", "local")
    assert f"No module named '{library}'; the in-process engine needs it: {EXTRA}" in said


@pytest.mark.parametrize("start", [GENERATES, CLASSIFIES], ids=["generator", "classifier"])
def test_a_model_of_a_guard_says_which_extra_has_its_library(start: tuple[str, str], tmp_path: Path) -> None:
    hook = tmp_path / "needs_model.py"
    lines = [
        "class NeedsModel:",
        "    def __call__(self, chunk): ...",
        f"    {start[0]}",
        f"        {start[1]}",
    ]
    hook.write_text("\n".join(lines))
    said = start_without("torch", "--engine", "echo", "--hook", f"{hook}:NeedsModel")
    assert f"the model 'weir-demo-guard' needs torch: {EXTRA}" in said


@pytest.mark.parametrize(
    ("module", "options", "what"),
    [
        ("proxy.http.page", ["--page"], "the page"),
        ("proxy.http.admin", ["--admin-key", "boss"], "the operator's API"),
        ("proxy.http.admin", ["--admin-port", "0"], "the operator's API"),
    ],
)
def test_an_option_of_code_that_is_left_out_is_refused(module: str, options: list[str], what: str) -> None:
    said = start_without(module, "--engine", "echo", "--port", "0", *options)
    assert said == f"weir serve: {what} is not installed: there is no module {module}"
