"""A hook that has something to close is closed when nobody uses it any more."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hooks import Chunk, Verdict, emit
from hooks.loading.loader import HookLoadError, HookSpec, LoadedHook
from hooks.pipeline.pipeline import Pipeline
from hooks.testing import assert_chunk_invariant, assert_never_released, play
from hooks.workers.pool import WorkerPool
from tests.helpers import guard_all, make_deltas, make_request, pipeline_of

CLOSES = """
from hooks import emit

class Closes:
    def __init__(self, file, fails=False):
        self.file, self.fails = file, fails

    def note(self, what):
        with open(self.file, "a") as file:
            file.write(what + " ")

    async def __call__(self, chunk):
        if self.fails:
            raise RuntimeError("no")
        if chunk.is_final and chunk.request_id != "weir-self-test":
            self.note("aborted" if chunk.aborted else "final")
        return emit(chunk.pending)

    async def close(self):
        self.note("closed")
"""


@pytest.fixture(autouse=True)
def mode() -> str:
    return "both, as each test says"


class Closes:
    """A hook that remembers what became of it."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def __call__(self, chunk: Chunk) -> Verdict:
        if chunk.is_final:
            self.log.append("aborted" if chunk.aborted else "final")
        return emit(chunk.pending)

    async def close(self) -> None:
        self.log.append("closed")


async def test_it_is_closed_with_its_pipeline_whoever_names_it() -> None:  # contract 1.7
    hooks = [Closes(), Closes()]
    pipeline = Pipeline([LoadedHook.of("first", hooks[0])], [LoadedHook.of("second", hooks[1])])
    await guard_all(pipeline, make_deltas("ab"), make_request(hooks=("second",)))
    await pipeline.aclose()
    assert [hook.log for hook in hooks] == [["final", "closed"]] * 2


async def test_one_that_fails_to_close_or_does_not_end_keeps_no_other_from_it(
    caplog: pytest.LogCaptureFixture,
) -> None:  # contract 1.7
    class Fails(Closes):
        async def close(self) -> None:
            raise RuntimeError("said hunter2")

    class Hangs(Closes):
        async def close(self) -> None:
            with contextlib.suppress(asyncio.CancelledError):
                await go.wait()
            await go.wait()
            self.log.append("late")

    go = asyncio.Event()
    hangs, hook = Hangs(), Closes()
    pipeline = pipeline_of(Fails(), hangs, hook, hook_timeout=0.01)
    await pipeline.aclose()
    assert (hangs.log, hook.log) == ([], ["closed"])
    assert "hook hook0 could not be closed: RuntimeError" in caplog.text
    assert "hook hook1 could not be closed: TimeoutError" in caplog.text
    assert "hunter2" not in caplog.text
    go.set()
    await asyncio.gather(*pipeline.hooks[1].late)
    assert hangs.log == ["late"]


@pytest.mark.parametrize("num_workers", [0, 1])
async def test_those_built_before_one_that_cannot_be_are_closed(tmp_path: Path, num_workers: int) -> None:
    (tmp_path / "closes.py").write_text(CLOSES)
    built = HookSpec(f"{tmp_path}/closes.py:Closes", {"file": str(tmp_path / "log")})
    missing = HookSpec(f"{tmp_path}/closes.py:Missing")
    with pytest.raises(HookLoadError, match="Missing"):
        if num_workers:
            await WorkerPool(num_workers, [built], [missing]).start()
        else:
            await Pipeline.load([built], [missing])
    assert (tmp_path / "log").read_text() == "closed "


@pytest.mark.parametrize("fails", [False, True])
async def test_a_worker_closes_its_hooks_when_it_ends(
    tmp_path: Path, patient: None, fails: bool
) -> None:  # contract 1.7
    (tmp_path / "closes.py").write_text(CLOSES)
    spec = HookSpec(f"{tmp_path}/closes.py:Closes", {"file": str(tmp_path / "log"), "fails": fails})
    pool = WorkerPool(1, [spec])
    if fails:
        with pytest.raises(HookLoadError, match="self-test"):
            await pool.start()
    else:
        await pool.start()
        await pool.open(make_request()).feed(make_deltas("a")[0])
    await pool.aclose()
    assert (tmp_path / "log").read_text() == ("closed " if fails else "aborted closed ")


def assert_released(hooks: Any, said: str) -> None:
    with pytest.raises(AssertionError, match="is released"):
        assert_never_released(hooks, said, said)


@pytest.mark.parametrize("run", [play, assert_chunk_invariant, assert_released])
def test_the_kit_closes_what_it_built_and_no_instance(run: Callable[..., object]) -> None:
    log: list[str] = []

    class Own(Closes):
        def __init__(self) -> None:
            self.log = log

    run(Own, "a")
    assert (log.count("closed"), log[-1]) == (1, "closed")
    run(hook := Closes(), "a")
    assert set(hook.log) == {"final"}
