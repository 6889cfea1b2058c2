"""Several models in one process: their engines share one thread."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from engine.core.engine_core import EngineCore
from engine.device import cuda
from engine.execution.model_runner import ModelRunner
from engine.local.classification import LocalClassifier
from engine.local.engine import LocalEngine
from engine.protocol import DeadEngineError, EngineError
from engine.protocol.options import EngineConfig
from tests.engine.device.classifiers import save_guard
from tests.helpers import until
from tests.processes import WAIT_LIMIT

Start = Callable[..., Awaitable[Any]]


def engine_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "weir-engine"]


async def test_models_on_one_thread_answer_as_each_does_alone(start_engine: Start) -> None:
    engines = [await start_engine("llama"), await start_engine("qwen3")]
    prompts = ["hello world", "the quick brown fox", "Grüße"]
    alone = [
        [(await engine.complete(prompt, max_tokens=40, ignore_eos=True))[0].ids for prompt in prompts]
        for engine in engines
    ]
    together = await asyncio.gather(
        *(engine.complete(prompt, max_tokens=40, ignore_eos=True) for engine in engines for prompt in prompts)
    )
    assert [answer.ids for [answer] in together] == [*alone[0], *alone[1]]
    assert len(engine_threads()) == 1


async def test_an_engine_that_fails_or_closes_leaves_the_others_their_thread(
    start_engine: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing, closing, serving = [await start_engine() for _ in range(3)]

    def step(core: EngineCore) -> Any:
        if any(seq.sampling.params.seed == 13 for seq in core.scheduler.waiting):
            raise RuntimeError("test")
        return run(core)

    run = EngineCore.step
    long = asyncio.get_running_loop().create_task(serving.complete("hello", max_tokens=300, ignore_eos=True))
    await until(lambda: serving.stats().num_running)
    monkeypatch.setattr(EngineCore, "step", step)
    with pytest.raises(EngineError, match="failed"):
        await failing.complete("hello", max_tokens=5, seed=13)
    with pytest.raises(EngineError, match="failed"):
        failing.check_health()
    await closing.aclose()
    serving.check_health()
    assert len((await long)[0].ids) == 300


async def test_the_loss_of_the_device_ends_all_engines_and_whatever_waits_for_them(
    start_engine: Start, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = torch.AcceleratorError("CUDA error: unspecified launch failure")

    def fail(*_: object) -> NoReturn:
        monkeypatch.setattr(cuda, "synchronize", fail)
        raise lost

    one, other = [await start_engine(max_num_seqs=1) for _ in range(2)]
    tokenizer.save_pretrained(tmp_path)
    guard = save_guard(tmp_path)
    classifier = LocalClassifier(EngineConfig(model=str(guard.path), num_threads=1, max_num_seqs=8))
    await classifier.start()
    asking = [
        asyncio.get_running_loop().create_task(engine.complete("hello", max_tokens=400, ignore_eos=True))
        for engine in (one, one, other)
    ]
    await until(lambda: one.stats().num_running and one.stats().num_waiting and other.stats().num_running)
    monkeypatch.setattr(ModelRunner, "run", fail)
    asking.append(asyncio.get_running_loop().create_task(classifier.open().feed([5])))
    errors = await asyncio.gather(*asking, return_exceptions=True)
    assert {type(error) for error in errors} <= {EngineError, DeadEngineError}
    assert {error.status for error in errors if isinstance(error, EngineError)} == {503}
    assert not any("CUDA" in str(error) for error in errors)
    for model in (one, other, classifier):
        with pytest.raises(DeadEngineError):
            model.check_health()
    with pytest.raises(DeadEngineError):
        await one.complete("hello", max_tokens=5)
    await classifier.aclose()


async def test_closing_while_the_model_loads_leaves_nothing(
    tiny_model: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loading, go = threading.Event(), threading.Event()
    load = ModelRunner.load

    def slow(config: EngineConfig) -> ModelRunner:
        loading.set()
        assert go.wait(WAIT_LIMIT)
        return load(config)

    monkeypatch.setattr(ModelRunner, "load", slow)
    engine = LocalEngine(EngineConfig(model=str(tiny_model("llama").path), num_threads=1))
    starting = asyncio.get_running_loop().create_task(engine.start())
    await asyncio.to_thread(loading.wait, WAIT_LIMIT)
    starting.cancel()
    await asyncio.wait([starting])
    closing = asyncio.get_running_loop().create_task(engine.aclose())
    await asyncio.sleep(0)
    assert not closing.done()
    go.set()
    await closing
    assert not engine_threads()
    with pytest.raises(EngineError, match="shut down"):
        engine.check_health()
