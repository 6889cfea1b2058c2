"""`weir serve --engine vllm` as a process: its answers, and its end when vLLM's processes die."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.processes import WAIT_LIMIT
from tests.serving import ROOT

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]


def task_children(task: Path) -> list[str]:
    return (task / "children").read_text().split()


@asynccontextmanager
async def serving(
    model: Path, log: Path, *options: str
) -> AsyncIterator[tuple["subprocess.Popen[str]", str]]:
    vllm = ("--vllm-dtype", "float32", "--vllm-enforce-eager", "--vllm-max-num-seqs", "4")
    command = [
        sys.executable,
        "-m",
        "proxy",
        "serve",
        "--port",
        "0",
        "--engine",
        "vllm",
        "--model",
        str(model),
    ]
    process = started([*command, *vllm, *options], log)
    assert process.stdout
    try:
        line = await asyncio.to_thread(process.stdout.readline)
        assert " at " in line, log.read_text()  # noqa: ASYNC240
        yield process, line.split(" at ")[1].split("/v1")[0]
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # vLLM's processes would outlive a killed parent
        process.wait(WAIT_LIMIT)
        process.stdout.close()


def started(command: list[str], log: Path) -> "subprocess.Popen[str]":
    with log.open("w") as file:
        return subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=file, text=True, start_new_session=True
        )


def engine_core_of(pid: int) -> int:
    children = [one for task in Path(f"/proc/{pid}/task").iterdir() for one in task_children(task)]
    (core,) = [int(one) for one in children if b"EngineCore" in Path(f"/proc/{one}/cmdline").read_bytes()]
    return core


async def test_it_answers_and_a_death_of_vllm_ends_requests_and_the_process(
    vllm_model: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with serving(vllm_model, log, "--hook", "examples/upper_case.py:UpperCase") as (process, url):
        async with aiohttp.ClientSession(url) as http:
            async with http.get("/ready") as response:
                assert response.status == 200
            body = {"model": str(vllm_model), "prompt": "hello", "max_tokens": 20, "ignore_eos": True}
            async with http.post("/v1/completions", json=body) as response:
                answer = await response.json()
            assert answer["usage"]["completion_tokens"] == 20
            text = answer["choices"][0]["text"]
            assert text == text.upper()
            body |= {"stream": True, "max_tokens": 480}
            async with http.post("/v1/completions", json=body) as response:
                await response.content.readline()
                os.kill(await asyncio.to_thread(engine_core_of, process.pid), signal.SIGKILL)
                rest = await response.text()
            assert rest.count("The engine has failed.") == 1
            async with http.get("/ready") as response:
                assert response.status == 503
        assert await asyncio.to_thread(process.wait, WAIT_LIMIT) == 1
    assert "the engine has failed; a new process is needed" in log.read_text()


async def test_an_argument_that_vllm_does_not_have_is_refused(vllm_model: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(AssertionError):
        async with serving(vllm_model, log, "--vllm-tensor-parallel", "2"):
            pass
    assert "no engine argument 'tensor_parallel'; did you mean 'tensor_parallel_size'?" in log.read_text()
