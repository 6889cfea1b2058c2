"""A prompt that cannot fit the model is refused by its length: no hook, tokenizer or engine is shown it."""

import asyncio
import threading
from dataclasses import replace
from typing import Any

import orjson
import pytest

from engine.protocol import GenerationRequest
from engine.protocol.options import EngineConfig
from engine.protocol.prompt_size import LONG_PROMPT
from hooks import emit
from tests.helpers import Script, ScriptedEngine, until
from tests.proxy.conftest import Client, Serve, hello, send

CHATS, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
LONG = "ab " * 200


class Reader(Script):
    def __init__(self) -> None:
        super().__init__(lambda chunk: emit(chunk.pending))
        self.requests: list[GenerationRequest] = []

    def on_request(self, request: GenerationRequest) -> GenerationRequest:
        self.requests.append(request)
        return request


def parted(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text} for text in texts]


@pytest.fixture
def reader() -> Reader:
    return Reader()


@pytest.fixture
def engine() -> ScriptedEngine:
    engine: Any = ScriptedEngine(hello)
    engine.info = replace(engine.info, max_model_len=100, max_prompt_bytes=500)
    engine.tokenizer = None  # nothing could tokenize or decode
    return engine


@pytest.fixture
async def client(serve: Serve, engine: ScriptedEngine, reader: Reader) -> Client:
    client = await serve(engine, reader)
    reader.requests.clear()  # the self-test's
    return client


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (COMPLETIONS, {"prompt": LONG}, "prompt"),
        (COMPLETIONS, {"prompt": ["short", LONG]}, "prompt"),
        (COMPLETIONS, {"prompt": "é" * 251}, "prompt"),
        (COMPLETIONS, {"prompt": [1] * 101}, "prompt"),
        (COMPLETIONS, {"prompt": [[1], [1] * 101]}, "prompt"),
        (CHATS, {"messages": [{"role": "user", "content": LONG}]}, "messages"),
        (CHATS, {"messages": [{"role": "user", "content": parted(LONG[:300], LONG[:300])}]}, "messages"),
        (CHATS, {"messages": [{"role": "user", "content": LONG[:300]}] * 2}, "messages"),
        (RESPONSES, {"input": LONG}, "input"),
        (RESPONSES, {"input": "a", "instructions": LONG}, "input"),
    ],
)
async def test_a_prompt_that_cannot_fit_is_shown_to_nobody(
    client: Client, engine: ScriptedEngine, reader: Reader, path: str, fields: dict[str, Any], param: str
) -> None:
    status, error = await send(client, path, orjson.dumps({"model": "m", **fields}))
    assert (status, error["code"], error["param"]) == (400, "context_length_exceeded", param)
    assert not engine.requests
    assert not reader.requests


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (COMPLETIONS, {"prompt": LONG[:500]}),
        (COMPLETIONS, {"prompt": [LONG[:500]] * 3}),
        (COMPLETIONS, {"prompt": "é" * 250}),
        # A template may leave out what the assistant thought.
        (CHATS, {"messages": [{"role": "assistant", "content": LONG}, {"role": "user", "content": "a"}]}),
    ],
)
async def test_a_prompt_that_may_fit_goes_on(
    client: Client, engine: ScriptedEngine, path: str, fields: dict[str, Any]
) -> None:
    status, body, _ = await client.post(path, {"model": "m", **fields})
    assert status == 200, body
    assert len(engine.requests) == 1


async def test_without_a_known_length_every_prompt_goes_on(serve: Serve) -> None:
    engine = ScriptedEngine(hello)
    client = await serve(engine)
    assert (await client.post(COMPLETIONS, {"model": "m", "prompt": LONG * 100}))[0] == 200
    assert (await client.post(COMPLETIONS, {"model": "m", "prompt": [1] * 5000}))[0] == 200


class SlowTokenizer:
    """Tokenizes a long text when it may."""

    def __init__(self) -> None:
        self.num_begun = 0
        self.may_end = threading.Event()

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        if len(text) >= LONG_PROMPT:
            self.num_begun += 1
            assert self.may_end.wait(60)
        return [1]


async def test_few_long_texts_are_tokenized_at_once(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EngineConfig, "tokenizer_pool_size", 1)
    engine: Any = ScriptedEngine(hello)
    slow = engine.tokenizer = SlowTokenizer()
    client = await serve(engine)
    long = {"prompt": "a" * LONG_PROMPT}
    tasks = [asyncio.get_running_loop().create_task(client.post("/tokenize", long)) for _ in range(4)]
    try:
        await until(lambda: slow.num_begun)
        for _ in range(3):
            assert (await client.post("/tokenize", {"prompt": "short"}))[0] == 200
        assert slow.num_begun == 1
    finally:
        slow.may_end.set()
    assert [(await task)[0] for task in tasks] == [200] * 4


@pytest.mark.parametrize("prompt", [LONG, list(range(101))])
async def test_a_prompt_that_is_truncated_may_have_any_length(
    prompt: Any, serve: Serve, engine: ScriptedEngine
) -> None:
    client = await serve(engine)
    body = {"model": "m", "prompt": prompt}
    assert (await client.post(COMPLETIONS, body))[0] == 400
    assert (await client.post(COMPLETIONS, {**body, "truncate_prompt_tokens": 5}))[0] == 200
