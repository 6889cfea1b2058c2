"""Hooks in processes of their own (contract 1.4, 1.5, 4.1)."""

import asyncio
import gc
import os
import signal
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from engine.protocol import Delta, RequestError
from hooks.loader import HookLoadError, HookSpec
from hooks.pipeline import PassThrough, guarded
from hooks.stage import HookError, PipelineOptions
from hooks.workers import WorkerPool, WorkerProcess
from tests.helpers import Source, ids_of, make_deltas, make_request, text_of, verdicts_of

HOOKS = """
import os, time
from hooks import emit, suppress

class Upper:
    def __init__(self, mark=""):
        self.mark = mark
    def __call__(self, chunk):
        return emit(chunk.pending.upper() + (self.mark if chunk.text_diff else ""))

class Pid:
    def __call__(self, chunk):
        return emit(f"{os.getpid()} " if chunk.text_diff else "")

class Does:
    '''What the text says.'''
    def __call__(self, chunk):
        if chunk.aborted:
            with open(os.environ["ABORTED"], "a") as file:
                file.write(chunk.request_id + chr(10))
        elif "die" in chunk.text_diff:
            os._exit(3)
        elif "hang" in chunk.text_diff:
            time.sleep(60)
        elif "stuck" in chunk.text_diff:
            while True:
                try:
                    time.sleep(60)
                except TimeoutError:
                    pass
        return emit(chunk.pending)

class Broken:
    def __init__(self):
        raise RuntimeError("no model here")

class Mute:
    def __call__(self, chunk):
        return None
"""


@pytest.fixture(autouse=True)
def mode() -> str:
    """Real processes here, once."""
    return "processes"


@pytest.fixture
async def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., object]]:
    (tmp_path / "guards.py").write_text(HOOKS)
    monkeypatch.setenv("ABORTED", str(tmp_path / "aborted"))
    pools: list[WorkerPool] = []

    async def make(
        *specs: HookSpec | str, workers: int = 1, allowed: str = "", **options: object
    ) -> WorkerPool:
        def spec(one: HookSpec | str) -> HookSpec:
            one = HookSpec(one) if isinstance(one, str) else one
            return HookSpec(f"{tmp_path}/guards.py:{one.path}", one.args, name=one.path)

        named = [spec(allowed)] if allowed else []
        pools.append(WorkerPool(workers, map(spec, specs), named, PipelineOptions(**options)))
        await pools[-1].start()
        return pools[-1]

    yield make
    for one in pools:
        await one.aclose()


async def run(pool: WorkerPool, *words: str, **fields: object) -> list[Delta]:
    async with aclosing(guarded(pool.open(make_request(**fields)), Source(make_deltas(words))())) as released:
        return [delta async for delta in released]


async def alive(pool: WorkerPool) -> bool:
    """Whether the pool serves again, as it must soon."""
    async with asyncio.timeout(20):
        while True:
            try:
                return text_of(await run(pool, "fine")) == "fine"
            except HookError:
                await asyncio.sleep(0.05)


async def test_hooks_work_as_they_do_in_process(pool) -> None:
    workers = await pool(HookSpec("Upper", {"mark": "!"}))
    released = await run(workers, "ab", "C")
    assert (text_of(released), ids_of(released)) == ("AB!C!", [])
    assert verdicts_of(workers)["Upper"] == {"rewrite": 2, "emit": 1}


async def test_a_requests_chunks_all_go_to_one_worker_and_requests_to_several(pool) -> None:
    workers = await pool("Pid", workers=2)
    texts = await asyncio.gather(*(run(workers, *"abcdef") for _ in range(8)))
    pids = [set(text_of(released).split()) for released in texts]
    assert [len(own) for own in pids] == [1] * 8
    assert len(set.union(*pids)) == 2
    assert str(os.getpid()) not in set.union(*pids)


async def test_a_worker_that_dies_fails_its_requests_and_is_replaced(pool) -> None:
    workers = await pool("Does")
    source = Source(make_deltas(["a", "die", "b"]))
    with pytest.raises(HookError):
        async with aclosing(guarded(workers.open(make_request()), source())) as released:
            assert [delta.text async for delta in released] == ["a"]
    assert source.closed_early
    assert await alive(workers)


async def test_requests_on_other_workers_go_on_when_one_dies(pool) -> None:
    workers = await pool("Does", workers=2)
    guards = [workers.open(make_request()) for _ in range(2)]
    for guard in guards:
        assert text_of(await guard.feed(make_deltas(["a"])[0])) == "a"
    with pytest.raises(HookError):
        await guards[0].feed(make_deltas(["die"])[0])
    assert text_of(await guards[1].feed(make_deltas(["b"])[0])) == "b"
    for guard in guards:
        await guard.close()


async def test_a_hook_that_hangs_fails_its_own_request_alone(pool) -> None:
    workers = await pool("Does", hook_timeout=0.2)
    guards = [workers.open(make_request()) for _ in range(2)]
    assert text_of(await guards[1].feed(make_deltas(["a"])[0])) == "a"
    (process,) = workers._workers
    with pytest.raises(HookError) as caught:
        await guards[0].feed(make_deltas(["hang"])[0])
    assert caught.value.hook == "Does"
    assert text_of(await guards[1].feed(make_deltas(["b"])[0])) == "b"
    assert workers._workers == {process}
    for guard in guards:
        await guard.close()


async def test_a_worker_that_is_stuck_is_killed_and_replaced(pool) -> None:
    workers = await pool("Does", hook_timeout=0.1)
    with pytest.raises(HookError):
        await run(workers, "stuck")
    assert await alive(workers)


async def test_a_killed_worker_is_replaced_though_nothing_ran(pool) -> None:
    workers = await pool("Does")
    (process,) = workers._workers
    os.kill(process.process.pid, signal.SIGKILL)
    assert await alive(workers)


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13, 40])
async def test_a_pool_closed_while_a_worker_starts_leaves_nothing_open(turns: int) -> None:
    """Neither socket nor process: an open one is told by a warning, and warnings are errors."""
    worker = WorkerProcess(WorkerPool(1, []))
    starting = asyncio.get_running_loop().create_task(worker.start())
    for _ in range(turns):
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    assert starting.cancelled()
    assert worker.process is None or worker.process.returncode is not None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del starting, worker
        gc.collect()
    assert [str(one.message) for one in caught] == []


async def test_a_client_that_leaves_gives_the_worker_its_last_calls(pool, tmp_path: Path) -> None:
    workers = await pool("Does")
    async with aclosing(guarded(workers.open(make_request()), Source(make_deltas("abc"))())) as released:
        async for _ in released:
            break
    assert (tmp_path / "aborted").read_text() == "r1\n"


async def test_requests_still_open_at_the_end_get_their_last_calls(pool, tmp_path: Path) -> None:
    workers = await pool("Does")
    await workers.open(make_request()).feed(make_deltas("a")[0])
    await workers.aclose()
    assert (tmp_path / "aborted").read_text() == "r1\n"


@pytest.mark.parametrize(
    ("hook", "reason"), [("Broken", "no model here"), ("Mute", "self-test"), ("No", "no class")]
)
async def test_a_hook_that_cannot_work_keeps_the_pool_from_starting(pool, hook: str, reason: str) -> None:
    with pytest.raises(HookLoadError, match=reason):
        await pool(hook)


async def test_a_request_may_name_what_the_pool_allows_and_nothing_else(pool) -> None:
    workers = await pool(allowed="Upper")
    assert isinstance(workers.open(make_request()), PassThrough)
    assert text_of(await run(workers, "a", hooks=("Upper",))) == "A"
    with pytest.raises(RequestError):
        workers.open(make_request(hooks=("Pid",)))
