"""The wheel of the last commit, in environments outside the checkout that have only the packages it asks for.

The other packages are links to those of this environment, so that nothing is downloaded. The commands run in
a project that has packages of its own by the names of Weir's.
"""

import json
import os
import re
import subprocess
import sys
import urllib.request
import venv
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.serving import ROOT, serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

PACKAGES = ("engine", "hooks", "proxy", "weir")

GUARD = """
import re
from hooks import Chunk, Verdict, redact

NAME = "Wren"

class NoName:
    max_hold = len(NAME) - 1

    def __call__(self, chunk: Chunk) -> Verdict:
        text = chunk.pending
        spans = [(found.start(), found.end(), "[name]") for found in re.finditer(NAME, text)]
        held = 0 if chunk.is_final else max(n for n in range(len(NAME)) if text.endswith(NAME[:n]))
        return redact(spans, hold=held)
"""


class Installation:
    """An environment with the wheel and pytest, and somebody's project to work in."""

    def __init__(self, folder: Path, wheel: Path, extras: Iterable[str] = ()) -> None:
        venv.create(folder / "env", symlinks=True)
        self.bin = folder / "env" / "bin"
        (self.site,) = (folder / "env").glob("lib/python*/site-packages")
        pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(self.bin / "python")]
        subprocess.run([*pip, "install", "--no-deps", "--no-index", str(wheel)], check=True)
        (weir,) = distributions(path=[str(self.site)])
        for name in names_of([*needed_by(weir, extras), Requirement("pytest")]):
            self._link(distribution(name))
        self.project = folder / "project"
        for package in PACKAGES:
            (self.project / package).mkdir(parents=True)
            (self.project / package / "__init__.py").write_text("raise ImportError('another project')\n")
        (self.project / "hooks" / "acme.py").write_text(GUARD)
        self.variables = {"PATH": f"{self.bin}:{os.environ['PATH']}", "HOME": str(folder)}

    def _link(self, other: Distribution) -> None:
        for top in {file.parts[0] for file in other.files or ()} - {"..", "__pycache__"}:
            if not (self.site / top).exists():
                (self.site / top).symlink_to(Path(str(other.locate_file(top))).resolve())

    def run(self, command: str, folder: Path | None = None) -> "subprocess.CompletedProcess[str]":
        name, *arguments = command.split()
        return subprocess.run(
            [self.bin / name, *arguments],
            cwd=folder or self.project,
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
        )

    def answer(self, *options: str) -> str:
        """The text that a server with these options answers."""
        body = {"temperature": 0, "messages": [{"role": "user", "content": "I am Wren. Who are you?"}]}
        weir = [str(self.bin / "weir")]
        with serving(*options, weir=weir, cwd=self.project, env=self.variables) as url:
            request = urllib.request.Request(
                f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=600) as answer:
                return str(json.load(answer)["choices"][0]["message"]["content"])


def needed_by(package: Distribution, extras: Iterable[str]) -> Iterator[Requirement]:
    for requirement in map(Requirement, package.requires or ()):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def names_of(requirements: list[Requirement]) -> set[str]:
    """The distributions that they name, and all that these need."""
    found = set()
    while requirements:
        one = requirements.pop()
        key = one.name, *sorted(one.extras)
        if key not in found:
            found.add(key)
            requirements += needed_by(distribution(one.name), one.extras)
    return {name for name, *_ in found}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    folder = tmp_path_factory.mktemp("source") / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    return folder


@pytest.fixture(scope="module")
def wheel(clone: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(clone / "dist"), str(clone)], check=True)
    (wheel,) = (clone / "dist").iterdir()
    return wheel


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Installation:
    return Installation(tmp_path_factory.mktemp("plain"), wheel)


def test_it_has_each_file_of_the_packages_and_no_other(clone: Path, wheel: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", *PACKAGES, "pytest_weir.py"],
        cwd=clone,
        capture_output=True,
        text=True,
        check=True,
    )
    tracked = set(listed.stdout.split())
    assert {f"{package}/py.typed" for package in PACKAGES} < tracked
    assert {"engine/models/demo/model/model.safetensors", "engine/device/kernels/cpu/linear.c"} < tracked
    with zipfile.ZipFile(wheel) as archive:
        found = set(archive.namelist())
    assert {name for name in found if ".dist-info/" not in name} == tracked


def test_every_package_comes_from_the_wheel(plain: Installation) -> None:
    code = "import sys; [print(__import__(name).__file__) for name in sys.argv[1:]]"
    command = [str(plain.bin / "python"), "-P", "-c", code, *PACKAGES, "pytest_weir"]
    ran = subprocess.run(command, cwd=plain.project, env=plain.variables, capture_output=True, check=True)
    for file in ran.stdout.decode().splitlines():
        assert Path(file).resolve().is_relative_to(plain.site)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_without_extras_it_serves_behind_a_hook(plain: Installation, workers: str) -> None:
    answer = plain.answer("--engine", "echo", "--hook", "hooks.acme.NoName", "--hook-workers", workers)
    assert "I am [name]" in answer


def test_without_extras_it_checks_a_hook(plain: Installation) -> None:
    ran = plain.run("weir hooks check hooks.acme.NoName")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_with_its_extras_it_serves_the_model_that_ships_and_fuzzes(tmp_path: Path, wheel: Path) -> None:
    full = Installation(tmp_path, wheel, ["engine", "guards", "testing"])
    assert "I am [name]" in full.answer("--hook", "hooks.acme.NoName", "--hook-workers", "2")
    assert list((tmp_path / ".cache" / "weir").glob("kernels-*.so"))
    everywhere = """phrases --args {"phrases":["Wren"],"word_boundaries":false} --secret Wren"""
    for hook in ("hooks.acme.NoName", everywhere):
        fuzzed = full.run(f"weir hooks fuzz {hook} --seconds 1")
        assert fuzzed.returncode == 0, fuzzed.stdout + fuzzed.stderr


def test_the_tutorial_works_in_a_folder_of_its_own(tmp_path: Path, wheel: Path) -> None:
    installation = Installation(tmp_path, wheel, ["guards"])
    page = (ROOT / "docs" / "writing-hooks.md").read_text()
    tutorial = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", page, re.DOTALL)
    folder = installation.project / "guards"
    folder.mkdir()
    (test_name, test), (name, first_try), (_, by_hand), (_, guard) = tutorial[:4]
    tries = (first_try, "2 failed, 1 passed"), (by_hand, "1 failed, 2 passed"), (guard, "3 passed")
    for content, outcome in tries:
        (folder / test_name).write_text(test)
        (folder / name).write_text(content)
        ran = installation.run("python -P -W error -m pytest -W error -p no:cacheprovider", folder)
        assert outcome in ran.stdout, ran.stdout + ran.stderr
