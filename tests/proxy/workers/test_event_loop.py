import sys

import pytest

from proxy.workers.event_loop import run, running_loop


async def _named() -> str:
    return running_loop()


def test_a_server_runs_under_uvloop_where_it_is_installed() -> None:
    assert run(_named()) == "uvloop"


def test_a_server_runs_under_asyncio_where_uvloop_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert run(_named()) == "asyncio"
