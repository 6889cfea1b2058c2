"""The guard `stream_guard` with the model that ships: its verdicts and its cost on the engine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from engine.local.classification import LocalClassifier
from engine.protocol import Engine
from engine.protocol.demo import STREAM_GUARD_DIR
from engine.protocol.options import EngineConfig
from engine.streams.recording import Recording
from hooks import Chunk, Verdict, emit, suspect
from hooks.builtin.stream_guard import StreamGuard
from hooks.loading.given import load
from hooks.pipeline.pipeline import Pipeline
from hooks.testing.play import play_once
from hooks.testing.streams import cut, num_places, stream_of, token_places

CARD = "Of course, the number on our card is 4111 1111 1111 1111, and the date is in May."
SAFE = "We have kettles, lamps and a map of the mill. The blue kettle costs nine euros. " * 24


@pytest.fixture(autouse=True)
def mode() -> str:
    return "in-process"


class Models:
    """Implements `GuardModels`: one classifier, by whatever name."""

    def __init__(self, model: LocalClassifier) -> None:
        self.model = model

    async def generator(self, name: str) -> Engine:
        raise ValueError(name)

    async def classifier(self, name: str) -> LocalClassifier:
        return self.model


@asynccontextmanager
async def started(**args: object) -> AsyncIterator[tuple[Pipeline, LocalClassifier]]:
    model = LocalClassifier(EngineConfig(model=str(STREAM_GUARD_DIR), kv_cache_memory=2**25))
    pipeline = Pipeline(load(StreamGuard(**args)))  # type: ignore[arg-type]  # a test's own arguments
    try:
        await model.start()
        await pipeline.start(Models(model))
        yield pipeline, model
    finally:
        await pipeline.aclose()
        await model.aclose()


def cuts_of(stream: Recording) -> list[Recording]:
    length = num_places(stream)
    places = [range(0, length, size) for size in (1, 7, 1000)]
    return [cut(stream, one) for one in (*places, token_places(stream))]


async def test_what_leaves_is_the_same_at_every_cut_alone_and_among_others() -> None:
    stream = stream_of(CARD, prompt="Which card?")
    async with started() as (pipeline, _):
        whole = await play_once(pipeline, stream)
        assert whole.stop_reason == "Card Number"
        assert whole.content.startswith("Of course")
        assert "4111 1" not in whole.content
        alone = [(await play_once(pipeline, one)).content for one in cuts_of(stream)]
        others = [stream_of(SAFE[: 80 * i], prompt="What is there?") for i in range(1, 9)]
        played = await asyncio.gather(
            *(play_once(pipeline, one) for one in [*cuts_of(stream), *others, *cuts_of(stream)])
        )
    contents = [one.content for one in played]
    assert {*alone, *contents[:4], *contents[-4:]} == {whole.content}
    assert contents[4:-4] == [SAFE[: 80 * i] for i in range(1, 9)]


@pytest.mark.parametrize("size", [3, 40, 160])
async def test_the_model_computes_each_token_once(size: int) -> None:
    stream = stream_of(SAFE, prompt="What is there?")
    async with started() as (pipeline, model):
        num_tokens = len(model.tokenizer.encode_text(SAFE).ids)
        before = model.stats().computed_tokens_total
        released = await play_once(pipeline, cut(stream, range(0, len(SAFE), size)))
        computed = model.stats().computed_tokens_total - before
    assert released.content == SAFE
    assert num_tokens > 500
    assert num_tokens <= computed <= 1.05 * (num_tokens + 40)


class Wary:
    def __call__(self, chunk: Chunk) -> Verdict:
        return suspect("card") if "card" in chunk.text else emit(chunk.pending)


async def test_a_cascade_asks_the_model_about_suspected_streams_alone() -> None:
    async with started(only_when="suspect") as (guarded, model):
        pipeline = Pipeline([*load(Wary()), *guarded.hooks])
        before = model.stats().computed_tokens_total
        assert (await play_once(pipeline, stream_of(SAFE))).content == SAFE
        assert model.stats().computed_tokens_total == before
        caught = await play_once(pipeline, stream_of(CARD))
        assert caught.stop_reason == "Card Number"
        assert "4111 1" not in caught.content
        assert model.stats().computed_tokens_total > before
