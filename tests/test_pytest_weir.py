"""The pytest plugin, found by pytest as it is after an installation, in a run of its own."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Write files into a folder and run pytest there."""
    # What an installation would tell pytest, from where the installation has it.
    group = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    installed = tmp_path / "site" / "weir_plugin-0.dist-info"
    installed.mkdir(parents=True)
    lines = [f"{name} = {module}" for name, module in group.items()]
    (installed / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines]))
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: weir-plugin\nVersion: 0\n")
    folder = tmp_path / "project"
    folder.mkdir()

    def run(
        *options: str, header: bool = False, safe: bool = False, **files: str
    ) -> "subprocess.CompletedProcess[str]":
        """`safe`: the folder is not on the path, as with the command `pytest`."""
        for name, content in files.items():
            (folder / f"{name}.py").write_text(content)
        start = [sys.executable, *["-P"][:safe], "-m", "pytest", "-p", "no:cacheprovider"]
        command = [*start, *["--no-header"][header:], *options]
        path = {"PYTHONPATH": f"{tmp_path / 'site'}:{ROOT}", "PATH": "/usr/bin:/bin", "COLUMNS": "200"}
        return subprocess.run(command, cwd=folder, env=path, capture_output=True, text=True, check=False)

    return run


def test_the_fixtures_take_texts_tokens_and_recordings(run: Run, tmp_path: Path) -> None:
    test = f'''
from pathlib import Path
from hooks import emit, terminate

class Upper:
    def __call__(self, chunk):
        return emit(chunk.pending.upper())

def test_texts(weir_play, weir_stream):
    assert weir_play(Upper, "a b").content == "A B"
    assert weir_play(Upper, ["a", "b"]).content == "AB"
    assert weir_play([Upper, Upper], weir_stream("a", channel="reasoning")).reasoning == "A"

def test_a_recording_beside_the_test(weir_play, weir_stream):
    assert weir_play(Upper, Path("email.jsonl")).content.startswith("OUR E-MAIL")

async def test_async(weir_play):
    assert weir_play("{ROOT}/examples/upper_case.py:UpperCase", "a").content == "A"

def test_a_failing_hook(weir_play):
    def fails(chunk):
        return {{}}[chunk.text]
    weir_play(fails, "a")
'''
    recording = (ROOT / "tests" / "recordings" / "email.jsonl").read_text()
    (tmp_path / "project" / "email.jsonl").write_text(recording)
    ended = run("-o", "asyncio_mode=auto", test_all=test)
    assert "1 failed, 3 passed" in ended.stdout, ended.stdout
    assert "KeyError: 'a'" in ended.stdout


def test_an_assertion_shows_the_line_of_the_test_and_none_of_its_own(run: Run) -> None:
    test = """
import re

from hooks import emit, redact
from hooks.testing import assert_never_released

def passes(chunk):
    return emit(chunk.pending)

def misses_ways(chunk):
    return redact([(one.start(), one.end(), "") for one in re.finditer("[abc]", chunk.pending)])

def fails(chunk):
    return {}[chunk.text]

def test_a_leak():
    assert_never_released(passes, "abc", "abc")

def test_a_way():
    assert_never_released(misses_ways, "abc", "abc")

def test_a_failure():
    assert_never_released(fails, "abc", "abc")
"""
    ended = run(test_leaks=test)
    assert "3 failed" in ended.stdout, ended.stdout
    assert "KeyError: " in ended.stdout, "a hook's own error is shown"
    assert [line for line in ended.stdout.splitlines() if "hooks/testing/" in line] == []


def test_pytest_lists_the_fixtures_with_what_they_do(run: Run) -> None:
    shown = run("--fixtures", test_none="").stdout
    assert re.search(r"^weir_play -- .*pytest_weir.py:\d+\n +`hooks.testing.play`:", shown, re.MULTILINE)
    assert re.search(r"^weir_stream -- ", shown, re.MULTILINE)


def test_nothing_is_loaded_that_is_not_used(run: Run) -> None:
    test = """
import sys

def test_what_is_loaded():
    assert "pytest_weir" in sys.modules
    heavy = {"hooks", "engine", "proxy", "pydantic", "orjson", "aiohttp", "torch"}
    assert heavy & set(sys.modules) == set()
"""
    ended = run(test_light=test)
    assert "1 passed" in ended.stdout, ended.stdout


USES_BOTH = """
import hooks

def test_of_the_projects_own_package():
    assert hooks.NAME == "the project's own"

def test_of_a_guard(weir_play):
    weir_play("some.Guard", "a")
"""


@pytest.fixture
def strangers(tmp_path: Path) -> Path:
    """A project with packages of its own by the names of Weir's."""
    for name in ("hooks", "proxy", "engine"):
        package = tmp_path / "project" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text('NAME = "the project\'s own"\n')
    return tmp_path / "project"


@pytest.mark.parametrize(
    "options", [(), ("-W", "error", "-p", "no:asyncio")], ids=["", "warnings are errors"]
)
def test_beside_another_package_called_hooks_it_says_so_and_stands_aside(
    run: Run, strangers: Path, options: tuple[str, ...]
) -> None:
    ended = run(*options, test_own=USES_BOTH, header=True)
    assert "1 passed, 1 error" in ended.stdout, ended.stdout + ended.stderr
    where = f"the package 'hooks' is not Weir's here, but {strangers}/hooks/__init__.py"
    header, _, error = ended.stdout.partition("collected")
    assert f"weir: the fixtures weir_play and weir_stream are off: {where}" in header
    assert f"weir_stream and weir_play cannot work here: {where}" in error


def test_another_package_called_engine_keeps_hooks_from_loading_as_well(run: Run, strangers: Path) -> None:
    (strangers / "hooks" / "__init__.py").unlink()
    (strangers / "hooks").rmdir()
    ended = run(test_guard="def test_of_a_guard(weir_play): ...", header=True)
    assert "1 error" in ended.stdout
    assert f"the package 'engine' is not Weir's here, but {strangers}/engine/__init__.py" in ended.stdout


def test_in_a_folder_of_their_own_the_fixtures_work_beside_such_packages(run: Run, strangers: Path) -> None:
    guards = strangers / "guards"
    guards.mkdir()
    (guards / "test_guard.py").write_text(
        "from hooks import emit\n\ndef test_it(weir_play):\n"
        "    assert weir_play(lambda chunk: emit(chunk.pending.upper()), 'a').content == 'A'\n"
    )
    ended = run("guards", "--import-mode=prepend", header=True, safe=True)
    assert "1 passed" in ended.stdout, ended.stdout
    assert "weir:" not in ended.stdout
