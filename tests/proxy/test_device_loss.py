"""A service whose models lose their device: every client is told, `/health` says so, and nothing hangs."""

import asyncio
import http.client
import os
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import aiohttp
import orjson
import pytest
import torch

from engine.device import cuda
from engine.execution.model_runner import ModelRunner
from proxy.deployment.build import build
from proxy.http.app import Server
from proxy.settings.serve import ServeSettings
from tests.helpers import until
from tests.processes import WAIT_LIMIT, killed_at_end
from tests.proxy.conftest import read_events
from tests.weir import ForkedWeir

CHATS = "/v1/chat/completions"
LONG = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 400, "ignore_eos": True, "n": 2}
LOST = torch.AcceleratorError("CUDA error: unspecified launch failure")
PROCESSOR = """
import torch
from engine.device import cuda

class Lose:
    def __call__(self, input_ids, logits):
        cuda.synchronize = lose
        lose()

def lose():
    raise torch.AcceleratorError("CUDA error: device-side assert triggered")
"""


async def test_every_client_is_told_and_the_service_is_not_healthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where the server's store is

    def lose(*_: object) -> NoReturn:
        monkeypatch.setattr(cuda, "synchronize", lose)
        raise LOST

    models: dict[str, Any] = {name: {"num_threads": 1, "max_num_seqs": 2} for name in ("main", "other")}
    settings = ServeSettings(port=0, models=models)
    server = Server(await build(settings), settings)
    async with aiohttp.ClientSession(await server.start()) as session:

        async def post(**fields: Any) -> tuple[int, bytes]:
            async with session.post(CHATS, json={**LONG, **fields}) as response:
                return response.status, await response.read()

        tasks = [
            asyncio.get_running_loop().create_task(post(model=name, stream=stream))
            for name in models
            for stream in (True, False)
        ]
        engines = [model.engine for model in server.service.deployment.models.values()]
        await until(lambda: all(e.stats().num_running and e.stats().num_waiting for e in engines))
        monkeypatch.setattr(ModelRunner, "run", lose)
        for answer in asyncio.as_completed(tasks):
            status, body = await answer
            assert b"The engine has failed." in body
            assert b"CUDA" not in body
            if status == 200:
                (*_, (name, error), (_, done)), _ = read_events(body)
                assert (name, error["error"]["type"], done) == ("error", "server_error", "[DONE]")
            else:
                assert status == 503
        assert (await post(model="other"))[0] == 503
        for path in ("/health", "/ready"):
            async with session.get(path) as response:
                assert response.status == 503
                assert b"CUDA" not in await response.read()
    await server.stop()


def test_the_process_ends_so_that_another_one_is_started(tmp_path: Path) -> None:
    (tmp_path / "lose.py").write_text(PROCESSOR)
    options = ("--logits-processor", f"lose={tmp_path}/lose.py:Lose", "--num-threads", "1")
    reader, writer = os.pipe()
    with open(reader) as said, tempfile.TemporaryFile("w+") as log, open(os.devnull) as nothing:
        with open(writer, "w") as stdout:
            process = ForkedWeir(["serve", "--port", "0", *options], nothing, stdout, log)
        with killed_at_end(process):
            url = said.readline().split(" at ")[1].split("/v1")[0]
            connection = http.client.HTTPConnection(url.removeprefix("http://"))
            body = {**LONG, "logits_processors": [{"name": "lose"}]}
            with closing(connection):
                connection.request("POST", CHATS, orjson.dumps(body), {"Content-Type": "application/json"})
                response = connection.getresponse()
                assert response.status == 503
                assert b"CUDA" not in response.read()
            assert process.wait(WAIT_LIMIT) == 1
        log.seek(0)
        assert log.read().endswith("weir serve: the engine has failed; a new process is needed\n")
