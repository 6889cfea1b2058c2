"""A hook that needs models gets them before its first call (contract 1.9)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from engine.protocol import EngineError
from engine.protocol.demo import MODEL_DIR
from engine.protocol.guard_models import GuardModels
from hooks import Chunk, Verdict, emit
from hooks.loading.loader import HookLoadError, HookSpec, LoadedHook
from hooks.pipeline.pipeline import Pipeline
from hooks.testing import assert_chunk_invariant, play
from hooks.workers.pool import WorkerPool
from tests.helpers import guard_all, make_deltas


@pytest.fixture(autouse=True)
def mode() -> str:
    return "both, as each test says"


class Starts:
    """A hook that remembers its calls in order."""

    def __init__(self) -> None:
        self.log: list[object] = []

    async def start(self, models: GuardModels) -> None:
        self.log.append(models)

    def __call__(self, chunk: Chunk) -> Verdict:
        self.log.append(chunk.request_id)
        return emit(chunk.pending)


async def test_it_gets_its_models_once_before_the_self_test_whoever_names_it() -> None:  # contract 1.9
    models: Any = object()
    hooks = [Starts(), Starts()]
    pipeline = Pipeline([LoadedHook.of("first", hooks[0])], [LoadedHook.of("second", hooks[1])])
    await pipeline.start(models)
    for hook in hooks:
        assert hook.log == [models, *["weir-self-test"] * 4]


async def test_one_that_cannot_start_keeps_the_server_from_starting() -> None:  # contract 1.4, 1.9
    class Fails(Starts):
        async def start(self, models: GuardModels) -> None:
            await models.generator("guard")

    hook = Fails()
    pipeline = Pipeline([LoadedHook.of("judge", hook)])
    told = "hook 'judge' could not be started: ValueError: model folder 'guard' not found"
    with pytest.raises(HookLoadError, match=told):
        await pipeline.start()
    assert hook.log == []


@pytest.mark.parametrize("start", [lambda models: None, "not a method"])
def test_a_start_of_another_kind_is_refused(start: Callable[..., Any] | str) -> None:
    hook = Starts()
    vars(hook)["start"] = start
    with pytest.raises(TypeError, match="start"):
        LoadedHook.of("hook", hook)


ASKS = """
from hooks import emit

class Asks:
    def __init__(self, model):
        self.model = model

    async def start(self, models):
        self.engine = await models.generator(self.model)

    async def __call__(self, chunk):
        self.engine.check_health()
        return emit(chunk.pending)
"""


@pytest.fixture
def asks(tmp_path: Path) -> str:
    """The path of a hook that asks for a model."""
    (tmp_path / "asks.py").write_text(ASKS)
    return f"{tmp_path}/asks.py:Asks"


@pytest.mark.slow  # the worker imports torch
async def test_a_hook_worker_loads_a_folder_by_itself(asks: str) -> None:  # contract 1.5, 1.9
    pool = WorkerPool(1, [HookSpec(asks, {"model": str(MODEL_DIR)})])
    await pool.start()
    await guard_all(cast(Any, pool), make_deltas("ab"))
    await pool.aclose()


async def test_a_hook_worker_knows_no_name_of_the_configuration(asks: str) -> None:
    with pytest.raises(HookLoadError, match=r"model folder 'guard' not found.* not hook workers"):
        await WorkerPool(1, [HookSpec(asks, {"model": "guard"})]).start()


async def test_a_pipeline_closes_the_models_that_it_loads_after_its_hooks() -> None:
    class Asks(Starts):
        async def start(self, models: GuardModels) -> None:
            self.engine = await models.generator(str(MODEL_DIR))

        async def close(self) -> None:
            self.engine.check_health()

    hook = Asks()
    pipeline = Pipeline([LoadedHook.of("judge", hook)])
    await pipeline.start()
    await pipeline.aclose()
    with pytest.raises(EngineError, match="shut down"):
        hook.engine.check_health()


@pytest.mark.parametrize("in_worker", [False, True])
def test_the_testing_kit_gives_hooks_their_models(in_worker: bool) -> None:
    class Asks(Starts):
        async def start(self, models: GuardModels) -> None:
            self.engine = await models.generator(str(MODEL_DIR))

        async def __call__(self, chunk: Chunk) -> Verdict:  # type: ignore[override]
            self.engine.check_health()
            return emit(chunk.pending)

    assert play(Asks(), "ab", in_worker=in_worker).content == "ab"
    assert_chunk_invariant(Asks, "ab", num_random=0)
