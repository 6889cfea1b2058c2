"""What `import weir` costs, and which names it has."""

import os
import subprocess
import sys
from pathlib import Path

import pydantic
import pytest

import hooks
import weir
from tests.serving import ROOT

HEAVY = ("torch", "transformers", "numpy", "aiohttp", "pydantic_settings", "prometheus_client", "proxy")
IMPORT = f"""
import sys, weir
memory = open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]
print([name for name in {HEAVY} if name in sys.modules], memory)
"""


def test_all_names_of_hooks_are_here() -> None:
    assert set(weir.__all__) >= set(hooks.__all__)
    assert all(hasattr(weir, name) for name in weir.__all__)
    assert weir.Chunk is hooks.Chunk


def test_the_import_is_cheap(tmp_path: Path) -> None:
    """At most 60 MB, and no heavy package. `python -m benchmarks.library` has its time."""
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "PYTHONPYCACHEPREFIX": str(tmp_path)}
    for _ in range(2):  # the first run compiles the modules
        printed = subprocess.check_output([sys.executable, "-c", IMPORT], env=environment, text=True)
    heavy, kilobytes = printed.split()
    assert heavy == "[]"
    assert int(kilobytes) < 60_000


def test_another_package_of_the_name_is_named(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "__init__.py").write_text("")
    run = subprocess.run(
        [sys.executable, "-S", "-c", "import weir"],  # no finder of an editable installation
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}:{Path(pydantic.__file__).parents[1]}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode != 0
    assert f"the package 'engine' is not Weir's here, but {tmp_path}/engine/__init__.py" in run.stderr


@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [
        ("weir.openai", "openai", "openai"),
        ("weir.openai", "httpx2", "openai"),
        ("weir.anthropic", "anthropic", "anthropic"),
        ("weir.litellm", "litellm", "litellm"),
        ("weir.langchain", "langchain_core", "langchain"),
        ("weir.pydantic_ai", "pydantic_ai", "pydantic-ai"),
        ("weir.adapters.envoy", "grpc", "envoy"),
    ],
)
def test_a_wrapper_without_its_library_says_what_to_install(module: str, library: str, extra: str) -> None:
    code = f"import sys; sys.modules[{library!r}] = None; import {module}"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 1
    assert f"install the extra {extra!r}" in ran.stderr.splitlines()[-1]
