"""Guard models that a process loads by itself."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.core.engine_core import EngineCore
from engine.local.own_models import OwnModels, find_model
from engine.protocol.demo import GUARDS
from engine.protocol.errors import DeviceLostError, EngineError
from tests.engine.conftest import completion
from tests.helpers import until

TinyModel = Callable[[str], Any]


async def test_a_model_is_loaded_once_and_closed_with_the_others(
    tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_model("llama").path
    monkeypatch.chdir(folder.parent)
    models = OwnModels()
    engine = await models.generator(str(folder))
    assert await models.generator(folder.name) is engine
    another = await models.generator(str(tiny_model("qwen3").path))
    assert another is not engine
    deltas = [delta async for delta in engine.generate(completion("hello", max_tokens=3, ignore_eos=True))]
    assert sum(len(delta.tokens) for delta in deltas) == 3
    await models.aclose()
    await until(lambda: not any(thread.name == "weir-engine" for thread in threading.enumerate()))


async def test_a_model_that_has_failed_for_good_is_told(
    tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = OwnModels()
    assert models.are_alive
    engine = await models.generator(str(tiny_model("llama").path))
    assert models.are_alive

    def step(core: EngineCore) -> Any:
        raise DeviceLostError

    monkeypatch.setattr(EngineCore, "step", step)
    with pytest.raises(EngineError):
        _ = [delta async for delta in engine.generate(completion("hello", max_tokens=3))]
    assert not models.are_alive
    await models.aclose()


async def test_a_model_that_cannot_be_loaded_may_be_asked_for_again(
    tmp_path: Path, tiny_model: TinyModel
) -> None:
    models = OwnModels()
    for _ in range(2):
        with pytest.raises((OSError, ValueError)):
            await models.generator(str(tmp_path))
        with pytest.raises(ValueError, match="classif"):
            await models.classifier(str(tiny_model("llama").path))
    await models.aclose()


def test_names_are_folders_hub_names_and_guards_that_ship(tmp_path: Path) -> None:
    assert find_model(str(tmp_path)) == str(tmp_path)
    assert find_model("Qwen/Qwen3Guard-Stream-0.6B") == "Qwen/Qwen3Guard-Stream-0.6B"
    for name, folder in GUARDS.items():
        if folder.is_dir():
            assert find_model(name) == str(folder)
    for name in ("guard", "./guard", "~/no/guard", "/no/such/guard"):
        assert find_model(name) is None
