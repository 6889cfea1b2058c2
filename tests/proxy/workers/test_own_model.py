"""`weir serve --workers 2` with a model on this machine: one process has the model, and two serve it."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from tests.processes import WAIT_LIMIT
from tests.proxy.http.admin.conftest import ADMIN
from tests.proxy.service.test_metrics import Samples
from tests.proxy.worker_helpers import CHATS, Ask, Workers, asker, begin, is_running, workers
from tests.proxy.workers.test_reload import call

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc, as Linux has it")

ASKED = {
    "messages": [{"role": "user", "content": "Hello!"}],
    "seed": 5,
    "max_tokens": 20,
    "logprobs": True,
    "top_logprobs": 2,
}
LONG = {"max_tokens": 900, "ignore_eos": True}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Workers]:
    with workers(tmp_path, "--hook", "pii", "--max-model-len", "1024") as one:
        yield one


def engines_process(service: Workers) -> int:
    """The process that has the model: a child of the supervisor that serves no port."""
    task = Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children")
    (pid,) = {int(child) for child in task.read_text().split()} - {*service.pids().values()}
    return pid


def answer(ask: Ask) -> Any:
    status, body = ask("POST", CHATS, ASKED)
    assert status == 200, body
    return orjson.loads(body)["choices"]


def generated(ask: Ask) -> float:
    """The tokens that the engine has generated, as all processes tell them."""
    return Samples(ask("GET", "/metrics")[1].decode())("weir_generation_tokens_total")


def test_each_worker_gives_the_same_answers_by_the_same_model(service: Workers) -> None:
    given = []
    for pid in service.pids().values():
        with asker(service, pid) as ask:
            given.append(answer(ask))
    assert given[0] == given[1]
    assert given[0][0]["logprobs"]["content"]
    loads = re.findall(r"kernels in C|weights of", service.log.read_text())
    assert len(loads) <= 1, "one process loads the model"


async def test_a_worker_that_is_killed_costs_its_own_requests(service: Workers) -> None:
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        streams = [await begin(session, service, **LONG) for _ in range(2)]
        while len({stream.pid for stream in streams}) < 2:
            streams.append(await begin(session, service, **LONG))
        number, pid = next(iter(service.pids().items()))
        os.kill(pid, signal.SIGKILL)
        assert [await stream.ended_well() for stream in streams] == [s.pid != pid for s in streams]
        await service.replaced(number, pid)
    for pid in service.pids().values():
        with asker(service, pid) as ask:
            answer(ask)


def test_the_engine_s_numbers_count_once(service: Workers) -> None:
    tokens = 0
    for pid in service.pids().values():
        with asker(service, pid) as ask:
            _, body = ask("POST", CHATS, ASKED)
            tokens += orjson.loads(body)["usage"]["completion_tokens"]
    with asker(service, pid) as ask:
        while (
            counted := Samples(ask("GET", "/metrics")[1].decode())("weir_generation_tokens_total")
        ) < tokens:
            pass
    assert counted == tokens


def test_the_service_ends_with_the_process_that_has_the_model(service: Workers) -> None:
    os.kill(engines_process(service), signal.SIGKILL)
    assert service.process.wait(WAIT_LIMIT) == 1
    assert "the process of the engine was killed by signal 9" in service.log.read_text()
    assert not any(map(is_running, service.pids().values()))


async def test_a_reload_keeps_the_model(tmp_path: Path) -> None:
    file = tmp_path / "weir.yaml"
    file.write_text(f"hooks: []\nadmin_key: {ADMIN}\n")
    with workers(tmp_path, "--config", str(file)) as service:
        model = engines_process(service)
        hook = "{path: phrases, args: {phrases: [Millrace], template: '[gone]'}}"
        file.write_text(f"hooks: [{hook}]\nadmin_key: {ADMIN}\n")
        status, answer_ = await call(service, "POST", "/admin/reload")
        assert (status, answer_["number"]) == (200, 2), answer_
        for pid in service.pids().values():
            with asker(service, pid) as ask:
                assert "[gone]" in answer(ask)[0]["message"]["content"]
        assert engines_process(service) == model
