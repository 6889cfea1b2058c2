"""How another process than the service is started: with the service's packages, wherever the service runs."""

import subprocess
import sys
from pathlib import Path

import pytest

from hooks.loading.loader import HookSpec
from hooks.workers.pool import WorkerPool

ROOT = Path(__file__).parents[3]

ACME = """
import sys
import engine
from hooks import emit

assert "NAME" not in vars(engine)

class Passes:
    def __init__(self, path=None):
        assert path is None or path == sys.path, (path, sys.path)
    def __call__(self, chunk):
        return emit(chunk.pending)
"""


@pytest.fixture(autouse=True)
def mode() -> None:
    """Once is enough: nothing here depends on where hooks run."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with packages by the names of Weir's."""
    for name in ("hooks", "proxy", "engine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text('NAME = "the project\'s own"\n')
    (tmp_path / "hooks" / "acme.py").write_text(ACME)
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def test_workers_run_in_a_folder_that_has_packages_by_the_same_names(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(project)])
    pool = WorkerPool(1, [HookSpec("hooks.acme.Passes", {"path": list(sys.path)})])
    await pool.start()
    await pool.aclose()


@pytest.mark.parametrize("command", [["check"], ["fuzz", "--seconds", "0.1"]], ids=lambda command: command[0])
@pytest.mark.slow
def test_commands_run_there_too(project: Path, command: list[str]) -> None:
    start = [sys.executable, "-P", "-m", "proxy", "hooks", *command, "hooks.acme.Passes"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    ended = subprocess.run(start, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


LOOKS = """
import os
from hooks import emit

class Looks:
    def __init__(self):
        assert "hunter2" not in str(os.environ), "a secret of the service"
        assert os.environ["ACME_KEY"] == "sesame"
        assert os.environ["WEIR_RESTORE_KEY"] == "a key of placeholders", "guards that restore need it"
    def __call__(self, chunk):
        return emit(chunk.pending)
"""


async def test_workers_do_not_get_the_services_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "looks.py").write_text(LOOKS)
    named = ("API_KEY", "UPSTREAM_API_KEY", "ADMIN_KEY", "STORE", "SSL_KEYFILE_PASSWORD", "MODELS")
    for name in (*(f"WEIR_{name}" for name in named), "weir_api_key"):
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("WEIR_UPSTREAM", "http://me:hunter2@host")
    monkeypatch.setenv("ACME_KEY", "sesame")
    monkeypatch.setenv("WEIR_RESTORE_KEY", "a key of placeholders")
    pool = WorkerPool(1, [HookSpec(f"{tmp_path}/looks.py:Looks")])
    await pool.start()
    await pool.aclose()
