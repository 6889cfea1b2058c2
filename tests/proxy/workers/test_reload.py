"""All workers take a new configuration, or none."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from pydantic import SecretStr

from proxy.settings.serve import ServeSettings
from proxy.workers.supervisor import supervised
from tests.proxy.http.admin.conftest import ADMIN, OPERATOR
from tests.proxy.http.admin.test_reload import CHATS, HOOK, Reloadable
from tests.proxy.worker_helpers import Workers, workers


async def call(service: Workers, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """An answer over a connection of its own, which any worker may take."""
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
        session.request(method, service.url + path, json=body, headers=OPERATOR) as response,
    ):
        return response.status, await response.json()


async def marks(service: Workers) -> set[str]:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    answers = await asyncio.gather(*(call(service, "POST", CHATS, body) for _ in range(24)))
    return {answer["choices"][0]["message"]["content"] for _, answer in answers}


@pytest.mark.slow
async def test_all_workers_reload_or_none(tmp_path: Path) -> None:
    (tmp_path / "marks.py").write_text(HOOK)
    one = Reloadable(tmp_path)
    one.write("A")
    with workers(tmp_path, "--config", str(one.file)) as service:
        assert await marks(service) == {"A"}
        one.write("B")
        status, answer = await call(service, "POST", "/admin/reload")
        assert (status, answer["number"]) == (200, 2), answer
        assert await marks(service) == {"B"}
        one.write("C", hook="nowhere.py:Marks")
        status, answer = await call(service, "POST", "/admin/reload")
        assert (status, answer["error"]["code"]) == (400, "reload_failed")
        one.write("C", more="client_timeout: 3")
        status, answer = await call(service, "POST", "/admin/reload")
        assert (status, answer["error"]["code"]) == (400, "reload_failed")
        assert await marks(service) == {"B"}
        one.write("D")
        was_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # the tests run under `nohup`
        if not was_ignored:
            os.kill(service.process.pid, signal.SIGHUP)
            while "signal: reload configuration 3" not in service.log.read_text():
                await asyncio.sleep(0.01)
            assert await marks(service) == {"D"}
            for number, pid in service.pids().items():
                os.kill(pid, signal.SIGKILL)
                await service.replaced(number, pid)
            assert await marks(service) == {"D"}, (
                "a worker that replaces another one has the new configuration"
            )
            assert (await call(service, "POST", "/admin/reload"))[1]["number"] == 4


CHANGES: dict[str, Any] = {
    "port": 8001,
    "admin_port": 9001,
    "state": SecretStr("sqlite:///:memory:"),
    "store": SecretStr("sqlite:///elsewhere.sqlite"),
    "workers": 3,
    "client_timeout": 3.0,
}
"""Options that need a restart. The workers have other values of the first three."""


async def test_a_reload_of_workers_names_every_option_that_needs_a_restart(tmp_path: Path) -> None:
    store = SecretStr(f"sqlite:///{tmp_path}/store.sqlite")
    running = ServeSettings(
        engine="echo", port=0, admin_port=0, workers=2, store=store, admin_key=[SecretStr(ADMIN)]
    )
    read = [running]
    async with supervised(running, lambda: read[0]) as (supervisor, _), aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{supervisor._settings.admin_port}/admin/reload"
        for change in ({name: value} for name, value in CHANGES.items()):
            read[0] = running.model_copy(update=change)
            async with session.post(url, headers=OPERATOR) as response:
                answer = await response.json()
            assert (response.status, answer["error"]["code"]) == (400, "reload_failed"), change
            assert answer["error"]["message"].endswith(f"these options need a restart: {next(iter(change))}")
        read[0] = running.model_copy(update={"hook_timeout": 3.0})
        async with session.post(url, headers=OPERATOR) as response:
            assert (response.status, (await response.json())["number"]) == (200, 2)
