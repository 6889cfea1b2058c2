"""Hooks in processes of their own (contract 1.4, 1.5, 4.1)."""

import asyncio
import gc
import os
import signal
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.protocol import Delta, RequestError
from hooks.api.decision import Decision
from hooks.decisions.failure import HookError
from hooks.loading.loader import HookLoadError, HookSpec
from hooks.loading.options import PipelineOptions
from hooks.pipeline.admission import RefusedError
from hooks.pipeline.driver import READ_ON_THREAD
from hooks.pipeline.open_guard import PassThrough
from hooks.testing.play import vetted
from hooks.workers.pool import WorkerPool, WorkerProcess
from tests.helpers import Source, finish_of, ids_of, make_deltas, make_request, text_of, until, verdicts_of

HOOKS = """
import asyncio, enum, os, time
from hooks import emit, refuse, suppress, terminate, with_prompt_texts

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

class Reason(enum.StrEnum):
    PII = "pii"

class Terminates:
    def __call__(self, chunk):
        return terminate(Reason.PII) if "pii" in chunk.text else emit(chunk.pending)

class SlowToEnd:
    '''A last call is as long as nobody lets it end.'''
    def __init__(self, folder):
        self.folder = folder
    def __call__(self, chunk):
        for gate in self.gates(chunk):
            time.sleep(0.05)  # longer than a worker is silent, also where the gate opens at once
            while os.path.exists(gate):
                time.sleep(0.01)
        return terminate("end") if "end" in chunk.text else emit(chunk.pending)
    def gates(self, chunk):
        if not chunk.aborted:
            return []
        gate = os.path.join(self.folder, str(chunk.output_index))
        open(gate, "w").close()
        return [gate]

class SlowToEndAsync(SlowToEnd):
    async def __call__(self, chunk):
        for gate in self.gates(chunk):
            while os.path.exists(gate):
                await asyncio.sleep(0.001)
        return terminate("end") if "end" in chunk.text else emit(chunk.pending)

class Hangs:
    '''Cannot be built while there is such a file; interrupted or not.'''
    def __init__(self, gate, stubborn=False):
        is_shut = True
        while is_shut:
            try:
                # `os.path.exists` takes an interruption within it for a file that is not there.
                is_shut = os.access(gate, os.F_OK)
                time.sleep(0.01)
            except TimeoutError:
                if not stubborn:
                    raise
    def __call__(self, chunk):
        if "die" in chunk.text_diff:
            os._exit(3)
        return emit(chunk.pending)

class Forks:
    def __call__(self, chunk):
        if "die" in chunk.text_diff and os.fork():
            os._exit(3)
        elif "die" in chunk.text_diff:
            time.sleep(5)
            os._exit(0)
        return emit(chunk.pending)

class Reads:
    '''Does what the prompt says; its answers tell which instance read it.'''
    def __init__(self):
        self.mine = {}
    def on_request(self, request):
        text = request.messages[0]["content"] if request.messages else request.prompts[0]
        self.mine[request.request_id] = text
        if "die" in text:
            os._exit(3)
        if "hang" in text:
            time.sleep(60)
        if "refuse" in text:
            return refuse("why", "no" if "politely" in text else None)
        return with_prompt_texts(request, lambda text: text.text.upper())
    def __call__(self, chunk):
        text = f"{self.mine[chunk.request_id]} {os.getpid()} " if chunk.text_diff else ""
        return emit(text if chunk.request_id != "weir-self-test" else chunk.pending)

class ReadsOnThread(Reads):
    '''Reads a prompt for as long as its file exists.'''
    thread_safe = True
    def on_request(self, request):
        gate = str(request.messages[0]["content"]).strip() if request.messages else ""
        if os.path.exists(gate):
            open(gate + ".begun", "w").close()
        while os.path.exists(gate):
            time.sleep(0.01)
        return super().on_request(request)

class ReadsAsync(Reads):
    async def on_request(self, request):
        if "hang" in str(request.messages):
            await asyncio.sleep(60)
        return super().on_request(request)

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


async def run(pool: WorkerPool, *words: str, **fields: Any) -> list[Delta]:
    async with aclosing(vetted(pool.open(make_request(**fields)), Source(make_deltas(words)))) as released:
        return [delta async for delta in released]


async def alive(pool: WorkerPool) -> bool:
    """Wait until the pool serves again."""
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
        async with aclosing(vetted(workers.open(make_request()), source)) as released:
            assert [delta.text async for delta in released] == ["a"]
    assert source.closed_early
    assert await alive(workers)


async def test_a_worker_that_dies_is_told_as_a_decision(pool) -> None:  # contract 8.14
    workers = await pool("Does")
    told: list[Decision] = []
    guard = workers.open(make_request(), listener=told.append)
    await guard.feed(make_deltas(["a"])[0])
    with pytest.raises(HookError):
        await guard.feed(make_deltas(["die"])[0])
    await guard.close()
    assert [(one.hook, one.action, one.output_index) for one in told] == [("worker", "error", None)]


async def test_requests_on_other_workers_go_on_when_one_dies(pool) -> None:
    workers = await pool("Does", workers=2)
    guards = [workers.open(make_request()) for _ in range(2)]
    for guard in guards:
        assert text_of((await guard.feed(make_deltas(["a"])[0])).released) == "a"
    with pytest.raises(HookError):
        await guards[0].feed(make_deltas(["die"])[0])
    assert text_of((await guards[1].feed(make_deltas(["b"])[0])).released) == "b"
    for guard in guards:
        await guard.close()


async def test_a_hook_that_hangs_fails_its_own_request_alone(pool, patient: None) -> None:
    workers = await pool("Does", hook_timeout=1.0)
    guards = [workers.open(make_request()) for _ in range(2)]
    assert text_of((await guards[1].feed(make_deltas(["a"])[0])).released) == "a"
    (process,) = workers._workers
    with pytest.raises(HookError) as caught:
        await guards[0].feed(make_deltas(["hang"])[0])
    assert caught.value.hook == "Does"
    assert text_of((await guards[1].feed(make_deltas(["b"])[0])).released) == "b"
    assert workers._workers == {process}
    for guard in guards:
        await guard.close()


async def test_a_worker_that_is_stuck_is_killed_and_replaced(pool) -> None:
    workers = await pool("Does", hook_timeout=1.0)
    with pytest.raises(HookError):
        await run(workers, "stuck")
    assert await alive(workers)


async def test_a_worker_that_leaves_a_process_behind_is_replaced_all_the_same(pool) -> None:
    workers = await pool("Forks", hook_timeout=30.0)
    with pytest.raises(HookError):
        await run(workers, "die")
    assert await alive(workers)


async def test_a_killed_worker_is_replaced_though_nothing_ran(pool) -> None:
    workers = await pool("Does")
    (process,) = workers._workers
    os.kill(process.process.pid, signal.SIGKILL)
    assert await alive(workers)


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5])
async def test_a_pool_closed_as_it_begins_leaves_no_process(pool, turns: int) -> None:
    workers = await pool("Does")
    (process,) = workers._workers
    for _ in range(turns):
        await asyncio.sleep(0)
    await workers.aclose()
    assert process.process.returncode is not None
    assert process.connection.is_closing


async def test_a_worker_whose_end_nobody_awaits_is_killed(pool) -> None:
    workers = await pool("Does")
    (process,) = workers._workers
    guard = workers.open(make_request())
    hanging = asyncio.get_running_loop().create_task(guard.feed(make_deltas(["stuck"])[0]))
    await asyncio.sleep(0)
    closing = asyncio.get_running_loop().create_task(workers.aclose())
    for _ in range(10):
        await asyncio.sleep(0)
        closing.cancel()
    await asyncio.gather(closing, hanging, *workers._slots, return_exceptions=True)
    await process.process.wait()


async def test_a_stuck_worker_that_does_not_read_does_not_keep_the_pool_open(pool) -> None:
    workers = await pool("Does")
    stuck, more = (workers.open(make_request()) for _ in range(2))
    loop = asyncio.get_running_loop()
    feeding = [
        loop.create_task(guard.feed(Delta(text=text)))
        for guard, text in ((stuck, "stuck"), (more, "a" * 10_000_000))
    ]
    await asyncio.sleep(0)
    await workers.aclose()
    assert all(
        isinstance(error, HookError) for error in await asyncio.gather(*feeding, return_exceptions=True)
    )


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


async def test_a_worker_that_cannot_be_understood_fails_its_requests_and_is_replaced(pool) -> None:
    workers = await pool("Does")
    (process,) = workers._workers
    guard = workers.open(make_request())
    assert text_of((await guard.feed(make_deltas(["a"])[0])).released) == "a"
    process.connection._reader.feed_data(b"\0\0\0\x06no one")
    with pytest.raises(HookError):
        while True:
            await guard.feed(make_deltas(["b"])[0])
    await guard.close()
    assert await alive(workers)
    assert process.process.returncode is not None


async def test_a_reason_of_a_hooks_own_class_reaches_the_service(pool) -> None:
    workers = await pool("Terminates")
    (process,) = workers._workers
    assert finish_of(await run(workers, "pii")) == ("content_filter", "pii")
    assert workers._workers == {process}


@pytest.mark.parametrize("hook", ["SlowToEnd", "SlowToEndAsync"])
async def test_a_worker_busy_with_many_last_calls_is_not_stuck(
    pool, monkeypatch: pytest.MonkeyPatch, hook: str, tmp_path: Path
) -> None:
    """Its silence would be three calls long, and the deadline is one's."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("hooks.workers.pool.time", SimpleNamespace(monotonic=lambda: clock.now))
    workers = await pool(HookSpec(hook, {"folder": str(tmp_path)}), hook_timeout=600.0)
    (process,) = workers._workers
    deltas = [Delta(text="a", index=i) for i in range(4)]
    source = Source([*deltas, Delta(text="end", index=3)])

    async def finishes() -> list[str | None]:
        async with aclosing(vetted(workers.open(make_request(n=4)), source)) as released:
            return [delta.finish_reason async for delta in released if delta.finish_reason]

    finishing = asyncio.get_running_loop().create_task(finishes())
    for gate in [tmp_path / str(i) for i in range(3)]:
        await until(gate.exists)
        clock.now += 500.0
        process._timer.cancel()
        process._watch()
        gate.unlink()
        await until(lambda: process._last_reply_at == clock.now)
    assert await finishing == ["content_filter"] * 4
    assert workers._workers == {process}


@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_hook_that_cannot_be_built_in_time_keeps_the_pool_from_starting(
    pool, tmp_path: Path, stubborn: bool
) -> None:  # contract 1.4
    (tmp_path / "gate").touch()
    spec = HookSpec("Hangs", {"gate": f"{tmp_path}/gate", "stubborn": stubborn})
    reason = "was stuck while it loaded the hooks" if stubborn else "could not be built: TimeoutError"
    with pytest.raises(HookLoadError, match=reason):
        await pool(spec, hook_load_timeout=1.0, hook_timeout=1.0 if stubborn else 600.0)


async def test_a_replacement_whose_hook_cannot_be_built_in_time_is_tried_again(pool, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    workers = await pool(HookSpec("Hangs", {"gate": str(gate)}), hook_load_timeout=2.0)
    assert workers.is_ready
    gate.touch()
    with pytest.raises(HookError):
        await run(workers, "die")
    assert not workers.is_ready
    gate.unlink()
    assert await alive(workers)


async def test_a_client_that_leaves_gives_the_worker_its_last_calls(pool, tmp_path: Path) -> None:
    workers = await pool("Does")
    async with aclosing(vetted(workers.open(make_request()), Source(make_deltas("abc")))) as released:
        async for _ in released:
            break
    assert (tmp_path / "aborted").read_text() == "r1\n"


async def test_requests_still_open_at_the_end_get_their_last_calls(
    pool, patient: None, tmp_path: Path
) -> None:
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


def saying(text: str) -> dict[str, Any]:
    return {"messages": ({"role": "user", "content": text},)}


@pytest.mark.parametrize("hook", ["Reads", "ReadsAsync"])
async def test_a_prompt_is_read_by_the_instance_that_sees_the_answer(pool, hook: str) -> None:  # contract 1.5
    workers = await pool(hook, workers=2)
    source = Source(make_deltas(["a", "b"]))
    async with aclosing(vetted(workers.open(make_request(**saying("hi"))), source)) as released:
        text = text_of([delta async for delta in released])
    said = text.split()
    assert (said[::2], len(set(said[1::2]))) == (["hi", "hi"], 1)
    assert source.requests == [make_request(**saying("HI"))]
    assert verdicts_of(workers)[hook] == {"rewrite_prompt": 1, "rewrite": 2, "emit": 1}


async def test_a_worker_refuses_prompts_as_the_service_would(pool) -> None:
    workers = await pool("Reads")
    with pytest.raises(RefusedError, match="The prompt was refused: why"):
        await run(workers, "a", **saying("refuse"))
    released = await run(workers, "a", **saying("refuse politely"))
    assert (text_of(released), finish_of(released)) == ("no", ("content_filter", "why"))
    assert verdicts_of(workers)["Reads"] == {"refuse": 2}


@pytest.mark.parametrize("hook", ["Reads", "ReadsAsync"])
async def test_a_hook_that_hangs_on_a_prompt_fails_its_own_request_alone(
    pool, patient: None, hook: str
) -> None:
    workers = await pool(hook, hook_timeout=1.0)
    (process,) = workers._workers
    with pytest.raises(HookError) as caught:
        await run(workers, "a", **saying("hang"))
    assert caught.value.hook == hook
    assert "hi" in text_of(await run(workers, "a", **saying("hi")))
    assert workers._workers == {process}


async def test_a_worker_that_dies_of_a_prompt_fails_its_request_and_is_replaced(pool) -> None:
    workers = await pool("Reads")
    with pytest.raises(HookError):
        await run(workers, "a", **saying("die"))
    await until(lambda: workers.is_ready)
    assert "hi" in text_of(await run(workers, "a", **saying("hi")))


async def test_others_do_not_wait_for_a_long_prompt_of_a_thread_safe_hook(
    pool, patient: None, tmp_path: Path
) -> None:  # contract 8.12
    gate = tmp_path / "gate"
    gate.touch()
    workers = await pool("ReadsOnThread", hook_timeout=60.0)
    prompt = saying(f"{gate}{' ' * READ_ON_THREAD}")
    long = asyncio.get_running_loop().create_task(run(workers, "a", **prompt))
    await until(Path(f"{gate}.begun").exists)
    assert "hi" in text_of(await run(workers, "a", **saying("hi")))
    assert not long.done()
    gate.unlink()
    assert str(gate) in text_of(await long)
    assert verdicts_of(workers)["ReadsOnThread"]["rewrite_prompt"] == 2


async def test_a_client_that_leaves_while_its_long_prompt_is_read_is_forgotten(
    pool, patient: None, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    workers = await pool("ReadsOnThread", hook_timeout=60.0)
    (process,) = workers._workers
    prompt = saying(f"{gate}{' ' * READ_ON_THREAD}")
    long = asyncio.get_running_loop().create_task(run(workers, "a", **prompt))
    await until(Path(f"{gate}.begun").exists)
    long.cancel()
    await asyncio.gather(long, return_exceptions=True)
    assert process.num_requests == 0
    gate.unlink()
    assert "hi" in text_of(await run(workers, "a", **saying("hi")))


async def test_a_worker_whose_thread_is_stuck_is_replaced(pool, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    workers = await pool("ReadsOnThread", hook_timeout=0.2)
    (process,) = workers._workers
    with pytest.raises(HookError) as caught:
        await run(workers, "a", **saying(f"{gate}{' ' * READ_ON_THREAD}"))
    assert caught.value.hook == "worker"
    await until(lambda: workers.is_ready)
    assert process not in workers._workers


async def test_a_pool_knows_which_of_its_hooks_read_prompts(pool) -> None:
    workers = await pool("Upper", allowed="Reads")
    assert not workers.open(make_request()).reads_prompts
    assert workers.open(make_request(hooks=("Reads",))).reads_prompts
    source = Source(make_deltas(["a"]))
    released = [delta async for delta in vetted(workers.open(make_request(**saying("refuse"))), source)]
    assert text_of(released) == "A"
    with pytest.raises(RefusedError):
        await run(workers, "a", hooks=("Reads",), **saying("refuse"))
