"""Signals to `weir serve` with hook workers: what a supervisor, a terminal and the kernel do."""

import http.client
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import aiohttp
import pytest

from engine.protocol import Delta, Usage
from engine.streams.recording import Recording, TimedDelta
from tests.helpers import make_request
from tests.processes import WAIT_LIMIT, wait_until
from tests.proxy.conftest import read_events
from tests.serving import started, url_of

HOOKS = """
import os, time
from pathlib import Path
from hooks import emit

class Passes:
    def __call__(self, chunk):
        return emit(chunk.pending)

class Blocks:
    def __init__(self, pid, at):
        self.pid, self.at = pid, at
        if at == "init":
            self.block()
    async def __call__(self, chunk):
        if chunk.request_id != "weir-self-test":
            self.block()
        return emit(chunk.pending)
    def block(self):
        Path(self.pid + ".new").write_text(str(os.getpid()))
        os.rename(self.pid + ".new", self.pid)
        time.sleep(3600)
"""


def wait_for_pid(file: Path) -> int:
    wait_until(file.exists)
    return int(file.read_text())


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_signal_to_the_whole_group_lets_streams_finish(tmp_path: Path) -> None:
    """As `timeout`, a terminal and systemd send it: workers leave it to the service."""
    words = [TimedDelta(0.05 * i, Delta(text=f"w{i} ")) for i in range(20)]
    end = TimedDelta(1.0, Delta(finish_reason="stop", usage=Usage(1, 20)))
    Recording(make_request(), (*words, end)).dump(tmp_path / "words.jsonl")
    (tmp_path / "guards.py").write_text(HOOKS)
    replay = ("--engine", "replay", "--recordings", str(tmp_path), "--replay-speed", "1")
    hook = ("--hook", f"{tmp_path}/guards.py:Passes", "--hook-workers", "2")
    with started(*replay, *hook, own_session=True) as process:
        url = url_of(process)
        body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}
        async with aiohttp.ClientSession() as session:
            async with session.post(url + "/v1/chat/completions", json=body) as response:
                begun = await response.content.readline()
                os.killpg(process.pid, signal.SIGTERM)
                events, _ = read_events(begun + await response.read())
        assert [name for name, _ in events] == [None] * len(events)
        assert events[-2][1]["choices"][0]["finish_reason"] == "stop"
        assert process.wait(WAIT_LIMIT) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="a worker is told of the service's death by Linux")
@pytest.mark.parametrize(
    ("at", "number"), [("call", signal.SIGKILL), ("init", signal.SIGKILL), ("init", signal.SIGTERM)]
)
def test_a_service_that_is_killed_leaves_no_worker(tmp_path: Path, at: str, number: int) -> None:
    """Though its hook blocks, so that it could not notice."""
    (tmp_path / "guards.py").write_text(HOOKS)
    (tmp_path / "weir.yaml").write_text(
        f"engine: echo\nhook_workers: 1\nhooks:\n  - path: {tmp_path}/guards.py:Blocks\n"
        f"    args: {{pid: {tmp_path}/pid, at: {at}}}\n"
    )
    with started("--config", str(tmp_path / "weir.yaml"), own_session=True) as process:
        with ExitStack() as stack:
            if at == "call":
                asked = http.client.HTTPConnection(url_of(process).removeprefix("http://"))
                stack.callback(asked.close)
                body = b'{"messages": [{"role": "user", "content": "Hi"}]}'
                asked.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
            worker = wait_for_pid(tmp_path / "pid")
            assert is_running(worker)
            process.send_signal(number)
            process.wait(WAIT_LIMIT)
            wait_until(lambda: not is_running(worker))
