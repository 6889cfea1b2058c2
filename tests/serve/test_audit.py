"""The audit under `weir serve`: with hook workers, and when clients, hooks, workers and the server leave."""

import asyncio
import json
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from engine.protocol import Delta
from engine.streams.recording import Recording, TimedDelta
from tests.helpers import make_request, until
from tests.processes import WAIT_LIMIT
from tests.serving import started, url_of

HOOKS = """
import os
from hooks import emit, hold

class Does:
    '''What the caller's name says.'''
    def __call__(self, chunk):
        user = chunk.request.user or ""
        if user.startswith("hold") and not chunk.is_final:
            return hold()
        if user.startswith("fail"):
            raise ValueError(chunk.text)
        if user.startswith("die"):
            os._exit(3)
        return emit(chunk.pending)
"""
CONFIG = """
engine: {engine}
hook_workers: {workers}
hooks:
  - path: {folder}/does.py:Does
  - path: phrases
    args: {{phrases: [project bluebird, hunter2]}}
  - path: audit
    args: {{path: {folder}/audit.jsonl, max_size: 4000, keep: 1000}}
"""
QUESTION = {"role": "user", "content": "Say hunter2 of Project Bluebird, please"}
Start = Callable[..., AbstractContextManager[Any]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    def run(workers: int, engine: str = "echo") -> AbstractContextManager[Any]:
        (tmp_path / "does.py").write_text(HOOKS)
        config = CONFIG.format(folder=tmp_path, workers=workers, engine=engine)
        (tmp_path / "weir.yaml").write_text(config)
        return started("--config", str(tmp_path / "weir.yaml"), own_session=True)

    return run


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in files(folder) for line in file.read_text().splitlines()]


def files(folder: Path) -> list[Path]:
    return [file for file in folder.glob("audit.jsonl*") if file.suffix != ".lock"]


def written(folder: Path) -> bytes:
    """The lines so far, while others are written."""
    found = b""
    for file in files(folder):
        with suppress(FileNotFoundError):
            found += file.read_bytes()
    return found


async def said(http: aiohttp.ClientSession, url: str, user: str, **fields: Any) -> tuple[int, str]:
    body = {"messages": [QUESTION], "user": user, **fields}
    async with http.post(url + "/v1/chat/completions", json=body) as response:
        return response.status, await response.text()


@pytest.mark.parametrize("workers", [0, 3])
async def test_every_decision_is_there_once_and_whole(tmp_path: Path, start: Start, workers: int) -> None:
    users = [f"u{i}" for i in range(60)]
    with start(workers) as process:
        url = url_of(process)
        async with aiohttp.ClientSession() as http:
            asked = [said(http, url, user, stream=i % 2 == 0) for i, user in enumerate(users)]
            answers = await asyncio.gather(*asked)
        if workers:  # a worker has a second to write the rest
            await until(lambda: written(tmp_path).count(b"\n") == 2 * len(users))
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_LIMIT) == 0
    assert {status for status, _ in answers} == {200}
    kept = [(r["user"], r["hook"], r["action"], r["offset"], r["num_withheld"]) for r in records(tmp_path)]
    told = [("phrases", "redact", 4, 7), ("phrases", "redact", 15, 16)]
    assert sorted(kept) == sorted((user, *one) for user in users for one in told)
    assert len(files(tmp_path)) > 5
    assert not any("hunter2" in str(record) for record in records(tmp_path))


@pytest.mark.parametrize("workers", [0, 2])
async def test_what_was_held_when_the_client_left_is_there(
    tmp_path: Path, start: Start, workers: int
) -> None:
    deltas = [TimedDelta(0.0, Delta(text="tea")), TimedDelta(3600.0, Delta(finish_reason="stop"))]
    (tmp_path / "said").mkdir()
    Recording(make_request(messages=(QUESTION,)), tuple(deltas)).dump(tmp_path / "said" / "tea.jsonl")
    with start(workers, engine=f"replay\nrecordings: {tmp_path}/said\nreplay_speed: 1") as process:
        url = url_of(process)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as http:
            leaving = asyncio.get_running_loop().create_task(said(http, url, "hold"))
            while b'action="hold"' not in await metrics(http, url):
                await asyncio.sleep(0.01)
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
            await until(lambda: records(tmp_path))
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_LIMIT) == 0
    (record,) = records(tmp_path)
    assert record["hook"] == f"{tmp_path}/does.py:Does"
    assert (record["action"], record["reason"], record["num_withheld"]) == ("hold", "aborted", 3)


async def metrics(http: aiohttp.ClientSession, url: str) -> bytes:
    async with http.get(url + "/metrics") as response:
        return await response.read()


@pytest.mark.parametrize("workers", [0, 2])
async def test_a_hooks_failure_is_there_without_its_text(tmp_path: Path, start: Start, workers: int) -> None:
    with start(workers) as process:
        async with aiohttp.ClientSession() as http:
            status, _ = await said(http, url_of(process), "fail")
        if workers:
            await until(lambda: written(tmp_path).endswith(b"\n"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_LIMIT) == 0
    assert status == 500
    (record,) = records(tmp_path)
    assert (record["user"], record["action"]) == ("fail", "error")
    assert record["reason"].startswith("ValueError at ")


async def test_a_worker_that_dies_leaves_whole_lines(tmp_path: Path, start: Start) -> None:
    with start(2) as process:
        url = url_of(process)
        async with aiohttp.ClientSession() as http:
            users = [f"u{i}" if i % 10 else f"die{i}" for i in range(40)]
            answers = await asyncio.gather(*(said(http, url, user) for user in users))
            done = [user for user, (status, _) in zip(users, answers, strict=True) if status == 200]
            while (await said(http, url, "last"))[0] != 200:
                await asyncio.sleep(0.05)
        await until(lambda: b'"last"' in written(tmp_path))
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_LIMIT) == 0
    kept = {record["user"] for record in records(tmp_path)}
    assert "last" in kept
    assert not any(user.startswith("die") for user in done)
