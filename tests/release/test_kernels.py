"""The wheel for x86-64 brings the kernels in C compiled. It runs here with the libraries of `make serve`, and
with no compiler in the PATH."""

import json
import platform
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tools.release.__main__ import ROOT
from tools.release.kernels import platform_tag

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the wheel is for x86-64"),
]

SAYS = """
import json, logging, sys
import engine.local
from engine.core.engine_core import EngineCore
from engine.core.input_processor import InputProcessor
from engine.execution.model_runner import ModelRunner
from engine.protocol import GenerationRequest, SamplingParams
from engine.protocol.options import EngineConfig
from engine.text.tokenizer import LocalTokenizer

lines = []
class Lines(logging.Handler):
    def emit(self, record):
        lines.append(record.getMessage())
logging.getLogger("weir.engine").addHandler(Lines())
logging.getLogger("weir.engine").setLevel("INFO")

config = EngineConfig(dtype=sys.argv[1], kv_cache_memory=2**24, num_threads=1)
tokenizer, runner = LocalTokenizer.load(config.model), ModelRunner.load(config)
core, texts = EngineCore(runner, tokenizer, config), []
request = GenerationRequest(
    request_id="r", model="m", endpoint="chat",
    messages=({"role": "user", "content": "What is the phone number of your bakery?"},),
    sampling=SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True),
)
core.add(InputProcessor.make(tokenizer, runner, config).process(request))
while core.has_work:
    texts += [delta.text for _, delta in core.step()]
print(json.dumps({"from": engine.__file__, "lines": lines, "text": "".join(texts)}))
"""


@pytest.fixture(scope="module")
def site(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the wheel is installed in."""
    (wheel,) = made.glob("*_x86_64.whl")
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target"]
    subprocess.run([*pip, str(folder), str(wheel)], check=True)
    return folder


def says(site: Path, dtype: str, cache: Path, **environment: str) -> dict[str, Any]:
    """What an engine of the installed wheel says, and how its kernels came."""
    script = cache / "says.py"
    script.write_text(SAYS)
    environment = {"PYTHONPATH": str(site), "XDG_CACHE_HOME": str(cache), "PATH": ""} | environment
    command = [str(ROOT / ".venv/bin/python"), str(script), dtype]
    said = subprocess.run(command, env=environment, cwd=cache, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    found: dict[str, Any] = json.loads(said.stdout)
    assert found["from"].startswith(str(site))
    return found


def kernels_of(found: dict[str, Any]) -> str:
    (line,) = [line for line in found["lines"] if "kernels in C" in line and "threads" not in line]
    return str(line)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_without_a_compiler_the_wheels_kernels_say_what_those_compiled_here_say(
    site: Path, tmp_path: Path, dtype: str
) -> None:
    came = says(site, dtype, tmp_path)
    assert kernels_of(came).endswith("as they came")
    compiled = says(site, dtype, tmp_path, PATH="/usr/bin:/bin", CC="cc")
    assert kernels_of(compiled).endswith("compiled for this processor")
    assert came["text"] == compiled["text"]
    assert "phone number is" in came["text"]


def test_kernels_of_another_source_are_not_loaded(made: Path, tmp_path: Path) -> None:
    (wheel,) = made.glob("*_x86_64.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    source = tmp_path / "site/engine/device/kernels/cpu/operators.c"
    source.write_text(source.read_text() + "/* changed */\n")
    assert "not found" in kernels_of(says(tmp_path / "site", "float32", tmp_path))
    compiled = says(tmp_path / "site", "float32", tmp_path, PATH="/usr/bin:/bin")
    assert kernels_of(compiled).endswith("compiled for this processor")


def test_the_tag_is_what_auditwheel_finds(made: Path, site: Path) -> None:
    (wheel,) = made.glob("*_x86_64.whl")
    command = [str(Path(sys.executable).parent / "auditwheel"), "show", str(wheel)]
    said = " ".join(subprocess.run(command, capture_output=True, check=True, text=True).stdout.split())
    tag = platform_tag(site / "engine/device/kernels/cpu/compiled")
    assert wheel.name.endswith(f"-py3-none-{tag}.whl")
    assert f'This constrains the platform tag to "{tag}"' in said
    _, _, libraries = said.partition("system-provided shared libraries: ")
    needed = libraries.partition(" This constrains")[0].split(" with versions")
    assert [words.split()[-1] for words in needed[:-1]] == [
        "libgomp.so.1",
        "libc.so.6",
    ]  # torch brings the first


def test_the_pure_wheel_has_no_compiled_file(made: Path) -> None:
    (pure,) = made.glob("*-none-any.whl")
    (compiled,) = made.glob("*_x86_64.whl")
    names = [set(zipfile.ZipFile(wheel).namelist()) for wheel in (pure, compiled)]
    assert names[0] < names[1]
    assert len(names[1] - names[0]) == 5
    assert {name.rpartition(".")[2] for name in names[1] - names[0]} == {"so"}
