"""A new configuration while the server runs, with hooks in processes of their own."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.proxy.http.admin.test_reload import Reloadable, reload, said

PACKAGE = """
import asyncio
import os

from hooks import emit


class Marks:
    def __init__(self, mark):
        self.mark = mark

    async def __call__(self, chunk):
        while "wait" in chunk.pending and not os.path.exists(GATE):
            await asyncio.sleep(0.005)
        return emit(chunk.pending.replace("x", f"{self.mark} {CODE} {os.getpid()}"))
"""


def children() -> set[str]:
    """The processes that this one has started and that run."""
    return {pid for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()}


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are listed by Linux")
async def test_new_hook_workers_take_changed_code_of_a_package_and_old_ones_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    gate, one = tmp_path / "gate", Reloadable(tmp_path)

    def write(mark: str, code: str) -> None:
        (tmp_path / "weir_test_marks.py").write_text(f"CODE = {code}\nGATE = {str(gate)!r}\n{PACKAGE}")
        one.write(mark, "hook_workers: 1")
        path = one.file.read_text().replace(f"{tmp_path}/marks.py:Marks", "weir_test_marks:Marks")
        one.file.write_text(path)

    write("A", "'first'")
    async with AsyncExitStack() as stack:
        others = children()
        client = await one.start(stack)
        service = client.server.service
        *marks, old = (await said(client)).split()
        assert marks == ["A", "first"]
        assert children() - others == {old}
        slow = asyncio.get_running_loop().create_task(said(client, "wait x"))
        while not service.requests.oldest(1).oldest:
            await asyncio.sleep(0.001)

        write("B", "'the second'")
        assert (await reload(client))[0] == 200
        *marks, new = (await said(client)).split()
        assert marks == ["B", "the", "second"]
        assert children() - others == {old, new}, "a request runs on the old worker"
        gate.touch()
        assert (await slow).endswith(f"A first {old}")
        while len(service.deployments.all) > 1 or children() - others != {new}:
            await asyncio.sleep(0.005)

        write("C", "1 // 0")
        status, answer = await reload(client)
        assert (status, answer["error"]["code"]) == (400, "reload_failed")
        assert "ZeroDivisionError" in answer["error"]["message"]
        assert (await said(client)).split() == ["B", "the", "second", new]
        assert children() - others == {new}, "nothing is left of the worker that could not start"
    assert children() == others
