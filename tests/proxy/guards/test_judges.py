"""Guards with a model of their own, in the service: many streams at a time, and each gets its own result."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.protocol import Delta, GenerationRequest
from hooks.builtin.classifier import Classifier
from hooks.builtin.classifier_models.batches import Batches
from hooks.builtin.classifier_models.classifiers import TextClassifier
from hooks.detect.detector import Match
from hooks.loading.loader import HookSpec
from hooks.loading.options import PipelineOptions
from hooks.workers.pool import WorkerPool
from tests.helpers import ScriptedEngine, make_deltas, pipeline_of, until
from tests.proxy.conftest import CHAT, Events, Serve

CHATS = "/v1/chat/completions"
NUM_STREAMS = 16
FINE = (
    "A heron stood at the weir. ",
    "Nobody hurried it. ",
    "They drank tea. ",
    "It rained and they would laugh. ",
)
RUDE = "The man said you idiot. "


def answer(number: int) -> list[str]:
    """The sentences of an answer. Every third answer has a rude sentence."""
    sentences = [FINE[(number + i) % len(FINE)] for i in range(3)]
    return [*sentences[:1], RUDE, *sentences[1:]] if number % 3 == 0 else sentences


def expected(number: int) -> str:
    return "".join(answer(number)).replace(RUDE, "[rude]")


def speak(request: GenerationRequest) -> list[Delta]:
    return make_deltas("".join(answer(int(request.messages[0]["content"]))))


def chat(number: int) -> dict[str, Any]:
    return {**CHAT, "messages": [{"role": "user", "content": str(number)}]}


ARGUMENTS: dict[str, Any] = {"labels": ["rude"], "unit": "sentences", "window": 1}


class Gate:
    """Makes the model's next batch wait, and counts the questions meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[int] = []
        self.num_asked = 0
        self._opened = threading.Event()
        self._opened.set()
        judge, ask = TextClassifier.__call__, Batches.ask

        def judged(classifier: TextClassifier, texts: Sequence[str]) -> list[list[Match]]:
            self.batches.append(len(texts))
            self._opened.wait(300)
            return judge(classifier, texts)

        async def asked(batches: Any, texts: Sequence[str]) -> Any:
            asking = asyncio.get_running_loop().create_task(ask(batches, texts))
            await asyncio.sleep(0)
            self.num_asked += 1
            return await asking

        monkeypatch.setattr(TextClassifier, "__call__", judged)
        monkeypatch.setattr(Batches, "ask", asked)

    def close(self) -> None:
        self._opened.clear()
        self.batches.clear()
        self.num_asked = 0

    def open(self) -> None:
        self._opened.set()

    async def until_asked(self, count: int) -> None:
        await until(lambda: self.num_asked >= count)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


def content_of(events: Events) -> str:
    assert events.chunks[-1]["choices"][0]["finish_reason"] == "stop"
    return events.content()


async def test_streams_that_wait_at_the_same_time_are_judged_together(
    serve: Serve, text_classifier: Path, gate: Gate
) -> None:
    client = await serve(ScriptedEngine(speak), Classifier(text_classifier, **ARGUMENTS))
    gate.close()
    loop = asyncio.get_running_loop()
    streams = [loop.create_task(client.stream(CHATS, chat(i))) for i in range(NUM_STREAMS)]
    await gate.until_asked(NUM_STREAMS)
    gate.open()
    texts = [content_of(events) for events in await asyncio.gather(*streams)]
    assert texts == [expected(i) for i in range(NUM_STREAMS)]
    assert sum(gate.batches[:2]) >= NUM_STREAMS
    assert sum(gate.batches) == sum(len(answer(i)) for i in range(NUM_STREAMS))


async def test_an_answer_that_is_not_streamed_is_the_same(serve: Serve, text_classifier: Path) -> None:
    client = await serve(ScriptedEngine(speak), Classifier(text_classifier, **ARGUMENTS))
    for number in range(3):
        _, body, _ = await client.post(CHATS, chat(number))
        assert body["choices"][0]["message"]["content"] == expected(number)


async def test_the_service_answers_while_the_model_runs(
    serve: Serve, text_classifier: Path, gate: Gate
) -> None:
    client = await serve(ScriptedEngine(speak), Classifier(text_classifier, **ARGUMENTS))
    gate.close()
    stream = asyncio.get_running_loop().create_task(client.stream(CHATS, chat(0)))
    await gate.until_asked(1)
    assert (await client.get("/health"))[0] == 200
    assert not stream.done()
    gate.open()
    assert content_of(await stream) == expected(0)


async def test_a_client_that_leaves_while_it_waits_ends_only_its_own_request(
    serve: Serve, text_classifier: Path, gate: Gate
) -> None:
    engine = ScriptedEngine(speak)
    client = await serve(engine, Classifier(text_classifier, **ARGUMENTS))
    gate.close()
    loop = asyncio.get_running_loop()
    streams = [loop.create_task(client.stream(CHATS, chat(i))) for i in range(3)]
    await gate.until_asked(3)
    streams[1].cancel()
    await until(lambda: engine.aborted)
    gate.open()
    assert [content_of(await streams[i]) for i in (0, 2)] == [expected(0), expected(2)]
    assert (engine.aborted, engine.running) == (1, 0)


async def test_a_model_that_takes_longer_than_the_deadline_fails_the_request(
    serve: Serve, text_classifier: Path, gate: Gate
) -> None:
    engine = ScriptedEngine(speak)
    guard = Classifier(text_classifier, **ARGUMENTS)
    pipeline = pipeline_of(guard)
    client = await serve(engine, guard, pipeline=pipeline)
    gate.close()
    pipeline.options = PipelineOptions(hook_timeout=0.1)
    status, body, _ = await client.post(CHATS, chat(0))
    gate.open()
    pipeline.options = PipelineOptions()
    assert (status, body["error"]["type"]) == (500, "guardrail_error")
    assert engine.running == 0
    assert (await client.post(CHATS, chat(1)))[1]["choices"][0]["message"]["content"] == expected(1)


async def test_prompts_are_judged_before_the_engine_gets_them(
    serve: Serve, text_classifier: Path, gate: Gate
) -> None:
    engine = ScriptedEngine(lambda request: make_deltas(["ok"]))
    client = await serve(engine, Classifier(text_classifier, **ARGUMENTS, prompt="refuse"))
    gate.close()
    loop = asyncio.get_running_loop()
    said = [FINE[0] + (RUDE if i % 2 else FINE[1]) for i in range(NUM_STREAMS)]
    posts = [
        loop.create_task(client.post(CHATS, {**CHAT, "messages": [{"role": "user", "content": text}]}))
        for text in said
    ]
    await gate.until_asked(NUM_STREAMS)
    assert engine.requests == []
    gate.open()
    answers = await asyncio.gather(*posts)
    assert [status for status, *_ in answers] == [200, 400] * (NUM_STREAMS // 2)
    assert answers[1][1]["error"]["code"] == "content_filter"
    assert len(engine.requests) == NUM_STREAMS // 2


@pytest.mark.slow
async def test_a_classifier_runs_in_hook_workers(serve: Serve, text_classifier: Path) -> None:
    pool = WorkerPool(1, [HookSpec("classifier", {"model": str(text_classifier), **ARGUMENTS})])
    client = await serve(ScriptedEngine(speak), pipeline=pool)
    streams = await asyncio.gather(*(client.stream(CHATS, chat(i)) for i in range(NUM_STREAMS)))
    assert [content_of(events) for events in streams] == [expected(i) for i in range(NUM_STREAMS)]
