"""A hook that needs models gets them before its first call (contract 1.9)."""

from collections.abc import Callable
from typing import Any

import pytest

from engine.guard_models import GuardModels
from hooks import Chunk, Verdict, emit
from hooks.loading.loader import HookLoadError, LoadedHook
from hooks.pipeline.pipeline import Pipeline


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
    told = "hook 'judge' could not be started: ValueError: no model can be used here: guard"
    with pytest.raises(HookLoadError, match=told):
        await pipeline.start()
    assert hook.log == []


@pytest.mark.parametrize("start", [lambda models: None, "not a method"])
def test_a_start_of_another_kind_is_refused(start: Callable[..., Any] | str) -> None:
    hook = Starts()
    vars(hook)["start"] = start
    with pytest.raises(TypeError, match="start"):
        LoadedHook.of("hook", hook)
