"""A model that classifies tokens, as hooks use it: on the engine thread, from an event loop."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import torch

from engine.core.classification.core import ClassifierCore
from engine.execution.model_runner import ModelRunner
from engine.local.classification import LocalClassifier
from engine.protocol.errors import DeadEngineError, EngineError
from engine.protocol.guard_models import TokenClassifier, TokenStream
from engine.protocol.options import EngineConfig
from tests.engine.core.classification.cores import rows_of
from tests.engine.device.classifiers import GUARD_LABELS, GuardModel
from tests.engine.device.decoders import prompts_of
from tests.helpers import until


@pytest.fixture
async def classifier(guard: GuardModel) -> AsyncIterator[LocalClassifier]:
    classifier = LocalClassifier(EngineConfig(model=str(guard.path), num_threads=1, max_num_seqs=8))
    await classifier.start()
    yield classifier
    await classifier.aclose()


async def fed(stream: TokenStream, ids: list[int], cut: int) -> torch.Tensor:
    """The logits of all tokens, fed `cut` at a time."""
    return torch.cat([rows_of(await stream.feed(ids[at : at + cut])) for at in range(0, len(ids), cut)])


async def test_streams_that_grow_together_get_the_logits_of_a_plain_reference(
    classifier: LocalClassifier, guard: GuardModel
) -> None:
    seen: TokenClassifier = classifier
    assert (seen.labels, seen.max_model_len) == (GUARD_LABELS, 2304)
    assert seen.tokenizer.encode("hello")
    texts = prompts_of(*range(30, 60))
    found = await asyncio.gather(
        *(fed(seen.open(caller="abc"[i % 3]), ids, (1, 7, 16, 100)[i % 4]) for i, ids in enumerate(texts))
    )
    for ids, rows in zip(texts, found, strict=True):
        assert torch.allclose(rows, guard.logits(ids), atol=1e-4)
    stats = classifier.stats()
    assert stats.computed_tokens_total == stats.prompt_tokens_total == sum(map(len, texts))


async def test_judging_and_serving_share_a_thread(
    classifier: LocalClassifier, guard: GuardModel, start_engine: Callable[..., Awaitable[Any]]
) -> None:
    engine = await start_engine("qwen3")
    alone = (await engine.complete("hello world", max_tokens=60, ignore_eos=True))[0].ids
    (ids,) = prompts_of(120)
    rows, *answers = await asyncio.gather(
        fed(classifier.open(), ids, 4),
        *(engine.complete("hello world", max_tokens=60, ignore_eos=True) for _ in range(4)),
    )
    assert torch.allclose(rows, guard.logits(ids), atol=1e-4)
    assert [answer.ids for [answer] in answers] == [alone] * 4


async def test_a_stream_goes_back_and_on(classifier: LocalClassifier, guard: GuardModel) -> None:
    (ids,) = prompts_of(50)
    stream = classifier.open()
    assert len(rows_of(await stream.feed([]))) == 0
    await stream.feed(ids[:30])
    stream.truncate(30)
    stream.truncate(21)
    assert stream.num_tokens == 21
    found = await stream.feed(ids[21:])
    assert torch.allclose(rows_of(found), guard.logits(ids)[21:], atol=1e-4)
    for num_tokens in (-1, 51):
        with pytest.raises(ValueError, match="50 tokens"):
            stream.truncate(num_tokens)


async def test_a_text_longer_than_the_context_is_an_error_and_may_be_taken_back(
    classifier: LocalClassifier,
) -> None:
    stream = classifier.open()
    await stream.feed([5] * 2300)
    with pytest.raises(EngineError, match="at most 2304 tokens"):
        await stream.feed([6] * 5)
    stream.truncate(2000)
    assert len(rows_of(await stream.feed([6] * 304))) == 304


@pytest.mark.parametrize("unknown", [-1, 400])
async def test_ids_that_the_model_does_not_know_are_refused(
    unknown: int, classifier: LocalClassifier
) -> None:
    with pytest.raises(ValueError, match="from 0 to 399"):
        await classifier.open().feed([5, unknown])
    assert len(rows_of(await classifier.open().feed([5]))) == 1


async def test_closing_frees_the_blocks_and_a_closed_stream_is_an_error(classifier: LocalClassifier) -> None:
    stream, other = classifier.open(), classifier.open()
    await stream.feed([5] * 40)
    for _ in range(2):
        stream.close()
    await until(lambda: classifier.stats().kv_blocks_used == 0)
    with pytest.raises(EngineError, match="closed"):
        await stream.feed([5])
    with pytest.raises(EngineError, match="closed"):
        stream.truncate(0)
    assert len(rows_of(await other.feed([5]))) == 1


async def test_a_cancelled_call_closes_its_stream(classifier: LocalClassifier) -> None:
    stream = classifier.open()
    task = asyncio.get_running_loop().create_task(stream.feed([5] * 2000))
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="one call of feed at a time"):
        await stream.feed([6])
    with pytest.raises(RuntimeError, match="one call of feed at a time"):
        stream.truncate(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(EngineError, match="closed"):
        await stream.feed([6])
    await until(lambda: classifier.stats().aborted_total and not classifier.stats().kv_blocks_used)
    assert len(rows_of(await classifier.open().feed([5]))) == 1


async def test_logits_that_are_no_numbers_are_an_error(
    classifier: LocalClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ModelRunner.run

    def broken(runner: ModelRunner, scheduled: Any) -> Any:
        logits, rest = run(runner, scheduled)
        return torch.full_like(logits, torch.nan), rest

    stream = classifier.open()
    monkeypatch.setattr(ModelRunner, "run", broken)
    with pytest.raises(EngineError, match="failed to classify"):
        await stream.feed([5, 6])
    monkeypatch.undo()
    with pytest.raises(EngineError, match="closed"):
        await stream.feed([5, 6])
    assert len(rows_of(await classifier.open().feed([5]))) == 1


async def test_a_model_that_dies_fails_every_stream_and_says_so(
    classifier: LocalClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(core: ClassifierCore) -> Any:
        raise RuntimeError("test")

    streams = [classifier.open() for _ in range(2)]
    await streams[0].feed([5])
    monkeypatch.setattr(ClassifierCore, "step", step)
    results = await asyncio.gather(*(stream.feed([6]) for stream in streams), return_exceptions=True)
    assert [type(result) for result in results] == [DeadEngineError] * 2
    with pytest.raises(DeadEngineError):
        classifier.check_health()
    with pytest.raises(DeadEngineError):
        classifier.open()


async def test_shutting_down_fails_the_calls_that_wait(guard: GuardModel) -> None:
    classifier = LocalClassifier(EngineConfig(model=str(guard.path), num_threads=1, max_num_seqs=8))
    with pytest.raises(EngineError, match="not been started"):
        classifier.open()
    await classifier.start()
    stream = classifier.open()
    task = asyncio.get_running_loop().create_task(stream.feed([5] * 2000))
    await asyncio.sleep(0)
    await classifier.aclose()
    with pytest.raises(EngineError, match="shutting down"):
        await task
    stream.close()


async def test_a_closed_model_is_freed_while_guards_still_refer_to_it(
    guard: GuardModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[weakref.ref[ModelRunner]] = []
    load = ModelRunner.load

    def noting(config: EngineConfig) -> ModelRunner:
        runner = load(config)
        loaded.append(weakref.ref(runner))
        return runner

    monkeypatch.setattr(ModelRunner, "load", noting)
    classifier = LocalClassifier(EngineConfig(model=str(guard.path), num_threads=1, max_num_seqs=8))
    await classifier.start()
    stream = classifier.open()
    await stream.feed([5, 6])
    await classifier.aclose()
    await until(lambda: gc.collect() >= 0 and loaded[0]() is None)
    with pytest.raises(EngineError, match="shutting down"):
        await stream.feed([5])
    assert (classifier.labels, classifier.max_model_len) == (GUARD_LABELS, 2304)


@pytest.mark.parametrize(
    "option", [{"probes": ("probe.safetensors",)}, {"num_speculative_tokens": 2}], ids=["probes", "guesses"]
)
async def test_options_for_next_tokens_are_refused(option: dict[str, Any], guard: GuardModel) -> None:
    classifier = LocalClassifier(EngineConfig(model=str(guard.path), **option))
    with pytest.raises(ValueError, match=f"cannot have {next(iter(option))}"):
        await classifier.start()


async def test_a_model_that_generates_is_refused_and_one_that_classifies_does_not_generate(
    guard: GuardModel, tiny_model: Callable[[str], Any], start_engine: Callable[..., Awaitable[Any]]
) -> None:
    path = str(tiny_model("qwen3").path)
    classifier = LocalClassifier(EngineConfig(model=path, num_threads=1))
    with pytest.raises(ValueError, match="does not classify tokens"):
        await classifier.start()
    await classifier.aclose()
    with pytest.raises(ValueError, match="cannot generate"):
        await start_engine("qwen3", model=str(guard.path))
