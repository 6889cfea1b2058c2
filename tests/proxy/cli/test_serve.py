"""`weir serve` as a process: its first lines, its refusals to start, its end at a signal."""

import asyncio
import os
import signal
import socket
import subprocess
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from engine.protocol import DeadEngineError
from proxy.workers.run import until_over
from tests.processes import WAIT_LIMIT
from tests.proxy.cli.conftest import weir
from tests.serving import started
from tests.weir import PipedWeir, run_weir


async def test_the_first_lines_name_the_address_and_a_command_to_try(echo: tuple[PipedWeir, str]) -> None:
    process, url = echo
    assert url.startswith("http://127.0.0.1:")
    process.stdout.readline()
    command = process.stdout.readline() + process.stdout.readline()
    run = partial(subprocess.run, capture_output=True, text=True, check=True, timeout=WAIT_LIMIT)
    ran = await asyncio.to_thread(run, ["bash", "-c", command])
    assert '"content":"HELLO!"' in ran.stdout
    assert ran.stdout.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("options", [(), ("--workers", "2"), ("--admin-key", "boss")], ids=" ".join)
def test_the_command_to_try_sends_a_key_where_the_server_has_keys(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    key = "of-a-client"
    store = f"sqlite:///{tmp_path}/weir.sqlite"
    arguments = ("serve", "--engine", "echo", "--port", "0", "--store", store, *options)
    with weir(*arguments, WEIR_API_KEY=key) as process:
        assert key not in process.stdout.readline()
        process.stdout.readline()
        command = "".join(process.stdout.readline() for _ in range(3))
        assert '-H "Authorization: Bearer $WEIR_API_KEY"' in command
        assert key not in command
        for sent, told in ((key, "data: [DONE]"), ("another", "invalid_api_key")):
            environment = {**os.environ, "WEIR_API_KEY": sent}
            ran = subprocess.run(
                ["bash", "-c", command],
                capture_output=True,
                text=True,
                check=True,
                env=environment,
                timeout=WAIT_LIMIT,
            )
            assert told in ran.stdout


def test_the_command_to_try_sends_a_key_once_the_operator_has_made_one(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/weir.sqlite"
    arguments = ("serve", "--engine", "echo", "--port", "0", "--store", store, "--admin-key", "boss")
    for has_keys in (False, True):
        with weir(*arguments) as process:
            url = process.stdout.readline().split(" at ")[1].split("/v1")[0]
            process.stdout.readline()
            command = "".join(process.stdout.readline() for _ in range(2))
            assert ("$WEIR_API_KEY" in command) == has_keys
            asked = urllib.request.Request(
                f"{url}/admin/keys",
                data=b'{"name": "alice"}',
                headers={"Content-Type": "application/json", "Authorization": "Bearer boss"},
            )
            if not has_keys:
                with urllib.request.urlopen(asked) as answer:
                    assert answer.status in (200, 201)
            process.send_signal(signal.SIGTERM)
            process.wait(WAIT_LIMIT)


async def test_sigterm_ends_an_idle_server_with_0(echo: tuple[PipedWeir, str]) -> None:
    process, url = echo
    async with aiohttp.ClientSession() as http, http.get(url + "/ready") as response:
        assert response.status == 200
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, WAIT_LIMIT) == 0
    assert process.stderr
    loads, loop = process.stderr.read().splitlines()
    assert loads.endswith("INFO weir.hooks: loading hook examples/upper_case.py:UpperCase")
    assert loop.endswith("INFO weir.proxy: the event loop is uvloop")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--hook", "no_such.Guard"], "hook 'no_such.Guard' could not be imported"),
        (["--hook", "examples/upper_case.py:Missing"], "has no class 'Missing'"),
        (["--engine", "openai"], "--upstream URL"),
        (["--engine", "replay"], "--recordings DIR"),
        (
            ["--engine", "local", "--model", "./nowhere"],
            "there is no model folder and no GGUF file ./nowhere",
        ),
        (["--vllm-seed", "1"], "options of vLLM need the engine 'vllm'"),
        (["--vllm", "[1"], "vllm: this is not JSON"),
        (["--port", "high"], "port: Input should be a valid integer"),
        (["--config", "/no/such.yaml"], "there is no configuration file /no/such.yaml"),
        (["--hook", "examples/upper_case.py:Missing", "--hook-workers", "1"], "has no class 'Missing'"),
        (["--nonsense"], "unrecognized arguments: --nonsense\n"),
        (["--hook-timeot", "3"], "unrecognized arguments: --hook-timeot; did you mean '--hook-timeout'?"),
        (["--hook", "phrse"], "did you mean 'phrases'?"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_a_server_that_cannot_start_says_why_and_exits(arguments: list[str], reason: str) -> None:
    ended = run_weir("serve", "--engine", "echo", "--port", "0", *arguments)
    assert ended.returncode in (1, 2)
    assert ended.stdout == ""
    assert reason in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_port_in_use_is_found_before_anything_is_loaded(workers: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        hook = "examples/upper_case.py:UpperCase"
        ended = run_weir("serve", "--engine", "echo", "--hook", hook, "--port", port, "--workers", workers)
    assert ended.returncode == 1
    reason = f"cannot listen on port {port} of 127.0.0.1: the port is in use; another program listens there"
    assert ended.stderr == f"weir serve: {reason}\n"


class Engine:
    """Its health is a list of errors; None: it is well."""

    def __init__(self, *health: Exception | None) -> None:
        self.health = list(health)

    def check_alive(self) -> None:
        if (error := self.health.pop(0)) is not None:
            raise error


async def test_the_service_ends_when_its_engine_fails_for_good() -> None:
    signalled = asyncio.Event()
    engine: Any = Engine(None, None, DeadEngineError("gone"))
    assert await until_over(signalled, engine.check_alive, interval=0.001)
    assert engine.health == []


async def test_a_signal_ends_the_service_whose_engine_is_well() -> None:
    signalled = asyncio.Event()
    engine: Any = Engine(None)
    asyncio.get_running_loop().call_soon(signalled.set)
    assert not await until_over(signalled, engine.check_alive, interval=60)


def greeting_of(*options: str) -> str:
    """The first line of a server that starts."""
    with started(*options) as process:
        line = process.stdout.readline()
        process.terminate()
        process.communicate()
    return line


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_first_line_names_all_models(workers: str, tmp_path: Path) -> None:
    file = tmp_path / "weir.yaml"
    file.write_text("models:\n  m: {engine: echo, aliases: [large]}\n  n: {engine: echo}\n")
    options = ("--config", str(file), "--workers", workers)
    assert greeting_of(*options).startswith("Weir serves m and n at http://127.0.0.1:")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--hook", "pii"], "nobody can have the hooks judge a text without guard_api (--guard-api)"),
        (["--guard-api", "litellm"], "no hook judges the texts (--hook)"),
    ],
)
def test_a_server_that_judges_nothing_warns(options: list[str], says: str) -> None:
    with started("--engine", "none", *options) as process:
        assert process.stdout.readline().startswith("Weir judges texts at ")
        process.terminate()
        _, log = process.communicate()
    assert [line for line in log.splitlines() if " WARNING " in line and says in line]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_upstream_that_does_not_say_its_models_is_greeted_without_a_made_up_name(
    workers: str, unused_tcp_port: int
) -> None:
    options = ("--engine", "openai", "--upstream", f"http://127.0.0.1:{unused_tcp_port}")
    with started(*options, "--workers", workers) as process:
        line = process.stdout.readline()
        process.terminate()
        rest, _ = process.communicate()
    assert line.startswith("Weir serves an upstream at http://127.0.0.1:")
    assert "each request names one in its field model" in line
    assert "MODEL" not in line + rest
