"""Whatever an upstream sends, a client gets no text that no hook was shown, and an end to every answer."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Delta, EngineError, GenerationRequest, RequestError, Usage
from engine.upstream.openai.engine import OpenAIEngine
from engine.upstream.openai.stream import StreamTranslator
from hooks import emit, hold
from proxy.wire.openai.answer import Answer
from proxy.wire.openai.chat import ChatAnswer, ChatRequest
from proxy.wire.openai.completions import CompletionAnswer, CompletionRequest
from proxy.wire.openai.response_answer import ResponsesAnswer
from proxy.wire.openai.responses import ResponsesRequest
from tests.engine.upstream.conftest import FakeUpstream
from tests.engine.upstream.conftest import upstream as _upstream
from tests.helpers import Script, ScriptedEngine, examples, guard_all, make_deltas, pipeline_of, text_of
from tests.proxy.conftest import CHAT, COMPLETION, Client, Serve

upstream = _upstream
DONE = b"data: [DONE]\n\n"
CHATS, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
ASKS = {
    CHATS: {**CHAT, "logprobs": True, "top_logprobs": 2, "return_token_ids": True},
    COMPLETIONS: {**COMPLETION, "logprobs": 2, "return_token_ids": True},
    RESPONSES: {"model": "m", "input": "Hi", "include": ["message.output_text.logprobs"], "top_logprobs": 2},
}
ENDPOINTS = pytest.mark.parametrize("path", list(ASKS))
STREAMING = pytest.mark.parametrize("stream", [False, True])


def passing() -> Script:
    return Script(lambda chunk: emit(chunk.pending))


async def in_front_of(serve: Serve, upstream: FakeUpstream, *hooks: Any, **settings: Any) -> Client:
    return await serve(OpenAIEngine(upstream.url), *hooks, names=[], **settings)


async def asked(client: Client, path: str, stream: bool) -> str:
    """Everything that the client gets for a request with logprobs."""
    if stream:
        events = (await client.stream(path, ASKS[path])).events
        assert events[-1] == (None, "[DONE]")
        return orjson.dumps(events).decode()
    return orjson.dumps((await client.post(path, ASKS[path]))[1]).decode()


def step(body: dict[str, Any], text: str, *tokens: Any, finish: str | None = None) -> dict[str, Any]:
    """A chunk for the endpoint that was asked. A token is a name, or a name and bytes."""
    entries: list[dict[str, Any]] = []
    for token in tokens:
        name, data = token if isinstance(token, tuple) else (token, None)
        own = {"token": name, "bytes": data and list(data), "logprob": -0.5}
        entries.append({**own, "top_logprobs": [own]})
    if "messages" in body:
        content: dict[str, Any] = {"delta": {"content": text}, "logprobs": {"content": entries}}
    else:
        names = [entry["token"] for entry in entries]
        numbers = {"token_logprobs": [-0.5] * len(names), "top_logprobs": [{name: -0.5} for name in names]}
        content = {"text": text, "logprobs": {"tokens": names, **numbers}}
    return {"choices": [{"index": 0, "finish_reason": finish, **content}]}


@ENDPOINTS
@STREAMING
@pytest.mark.parametrize(
    "steps",
    [
        [("hello", "hunter2\ufffd")],
        [("hello", ("hunter2\ufffd", b"hunter2\xff"))],
        [("hello", ("hello", b"hunter2\xff"))],
        [("hello", "<hunter2>", "hello")],
        [("hello", "hello"), ("", "hunter2")],
        [("hello", "hello", "hunter2")],
        [("hel", "hel", "hunter2"), ("lo", "\ufffd", "lo")],
    ],
)
async def test_no_token_is_told_whose_text_no_hook_was_shown(
    serve: Serve, upstream: FakeUpstream, path: str, stream: bool, steps: list[tuple[Any, ...]]
) -> None:  # contract 8.4
    def say(body: dict[str, Any]) -> Any:
        yield from (step(body, text, *tokens) for text, *tokens in steps)
        yield step(body, "", finish="stop")
        yield DONE

    upstream.script = say
    hook = passing()
    client = await in_front_of(serve, upstream, hook)
    got = await asked(client, path, stream)
    assert "hunter2" not in got
    assert str(list(b"hunter2")).strip("[]").replace(" ", "") not in got
    shown = [chunk.text_diff for chunk in hook.chunks if chunk.request_id != "weir-self-test"]
    assert "".join(shown) == "hello"
    assert '"logprobs"' in got


@ENDPOINTS
@STREAMING
async def test_tokens_that_are_their_text_are_told(
    serve: Serve, upstream: FakeUpstream, path: str, stream: bool
) -> None:
    upstream.script = lambda body: [step(body, "hello", "hel", "lo", finish="stop"), DONE]
    got = await asked(await in_front_of(serve, upstream, passing()), path, stream)
    assert '"hel"' in got
    assert '"lo"' in got


@ENDPOINTS
@STREAMING
@pytest.mark.parametrize("absurd", [-7, 2**53 + 1, 2**63, 2**64, 10**30, 1.5, True])
async def test_a_count_that_makes_no_sense_ends_no_request(
    serve: Serve, upstream: FakeUpstream, path: str, stream: bool, absurd: Any
) -> None:
    usage = {"prompt_tokens": absurd, "completion_tokens": absurd, "total_tokens": absurd}
    counts = f'data: {{"choices": [], "usage": {json.dumps(usage)}}}\n\n'.encode()
    upstream.script = lambda body: [step(body, "hello", finish="stop"), counts, DONE]
    client = await in_front_of(serve, upstream, passing())
    got = await asked(client, path, stream)
    assert "hello" in got
    assert '"error":{' not in got
    assert f'tokens":{str(absurd).lower()}' not in got
    engine = client.engine
    assert engine.stats().generation_tokens_total == 1
    assert engine.stats().prompt_tokens_total == 0


@ENDPOINTS
async def test_an_answer_that_cannot_be_written_ends_with_an_error(serve: Serve, path: str) -> None:
    """The error of an answer may be the answer itself: then the error is sent alone."""
    huge = Usage(2**64, 2**64)
    deltas = [*make_deltas(["hello"], finish=False, usage=huge), Delta(finish_reason="stop", usage=huge)]
    client = await serve(ScriptedEngine(lambda request: deltas))
    body = {**ASKS[path], "stream_options": {"include_usage": True}} if path != RESPONSES else ASKS[path]
    events = (await client.stream(path, body)).events
    assert [name for name, _ in events].count("error") == 1
    assert events[-1] == (None, "[DONE]")
    assert (await client.get("/health"))[0] == 200


TEXTS = st.sampled_from(
    ["", "a", "b ", "é", "😀", "hello", "hunter2", "<hunter2>", "hunter2\ufffd", "\ufffd"]
)
BYTES = st.none() | st.sampled_from([b"", b"a", b"hunter2\xff", b"\xf0\x9f", b"\x98\x80", b"hello"])
TOKENS = st.lists(st.tuples(TEXTS, BYTES), max_size=4)


def asked_of(path: str, **sampling: Any) -> tuple[Answer, GenerationRequest]:
    body = {**ASKS[path], "top_logprobs": 0} | ({"logprobs": 0} if path == COMPLETIONS else {})
    if path == CHATS:
        chat = ChatRequest.model_validate(body)
        request = chat.to_request("r", "m")
        return ChatAnswer(chat, request), with_sampling(request, **sampling)
    if path == COMPLETIONS:
        completion = CompletionRequest.model_validate(body)
        request = completion.to_request("r", "m")
        return CompletionAnswer(completion, request), with_sampling(request, **sampling)
    response = ResponsesRequest.model_validate(body)
    request = response.to_request("r", "m", response.input)
    return ResponsesAnswer(response, request), with_sampling(request, **sampling)


def with_sampling(request: GenerationRequest, **sampling: Any) -> GenerationRequest:
    return replace(request, sampling=replace(request.sampling, **sampling))


def told_in(value: Any) -> Iterator[bytes]:
    """Names and bytes of tokens, anywhere in an answer. U+FFFD stands for a part of a character."""
    if isinstance(value, list):
        for one in value:
            yield from told_in(one)
    elif isinstance(value, dict):
        if isinstance(value.get("bytes"), list):
            yield bytes(value["bytes"])
        names = [*value.get("tokens", ()), *([value["token"]] if "token" in value else [])]
        yield from (name.replace("\ufffd", "").encode() for name in names if not name.startswith("token_id:"))
        for one in value.values():
            yield from told_in(one)


@given(
    path=st.sampled_from([CHATS, COMPLETIONS, RESPONSES]),
    steps=st.lists(st.tuples(TEXTS, TOKENS, st.booleans()), max_size=6),
    stop=st.sampled_from([(), ("stop",), ("hello",)]),
    num_held=st.integers(0, 3),
)
def test_no_token_is_told_in_any_answer_whose_text_no_hook_was_shown(
    path: str, steps: list[tuple[str, Any, bool]], stop: tuple[str, ...], num_held: int
) -> None:  # contract 8.4
    """An upstream sends any text beside any tokens, and perhaps ids."""
    answer, request = asked_of(path, stop=stop)
    translator = StreamTranslator(request)
    deltas: list[Delta] = []
    for text, tokens, has_ids in [*steps, ("", [], False)]:
        sent = step({"messages": []} if request.is_chat else {}, text, *tokens)
        sent["choices"][0]["token_ids"] = [7] * len(tokens) if has_ids else None
        deltas += translator.feed(sent)
    deltas += translator.finish(complete=True)
    hook = Script(lambda c: emit(c.pending) if c.is_final else hold(min(num_held, len(c.pending))))
    released = asyncio.run(guard_all(pipeline_of(hook), deltas, request))

    for delta in released:
        answer.fold(delta)
    shown = "".join(chunk.text_diff for chunk in hook.chunks).encode()
    assert text_of(released).encode() == shown
    for told in told_in(orjson.loads(answer.whole())):
        assert told in shown


NAMES = st.sampled_from(
    [
        *("choices", "index", "delta", "text", "content", "logprobs", "token", "tokens", "bytes", "logprob"),
        *("token_logprobs", "top_logprobs", "token_ids", "prompt_token_ids", "finish_reason", "stop_reason"),
        *("usage", "prompt_tokens", "completion_tokens", "completion_tokens_details", "reasoning_tokens"),
        *("tool_calls", "function", "name", "arguments", "id", "reasoning_content", "type", "error"),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just(2**70),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
CHOICES = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("delta", "text", "logprobs", "token_ids", "finish_reason", "index"), VALUES)
)
CHUNKS = VALUES | st.fixed_dictionaries(
    {"choices": st.lists(CHOICES, max_size=2)}, optional={"usage": VALUES}
)


@given(path=st.sampled_from([CHATS, COMPLETIONS, RESPONSES]), chunks=st.lists(CHUNKS, max_size=3))
@examples(100)
def test_any_json_of_an_upstream_is_an_answer_or_a_known_error(path: str, chunks: list[Any]) -> None:
    answer, request = asked_of(path)
    engine = OpenAIEngine("http://127.0.0.1:1")
    translator = StreamTranslator(request)
    deltas: list[Delta] = []
    with contextlib.suppress(EngineError, RequestError), engine.engine_errors():
        for chunk in chunks:
            deltas += translator.feed(chunk)
        deltas += translator.finish(complete=True)
    for delta in deltas:
        answer.chunk(delta)
        answer.fold(delta)
    assert orjson.loads(answer.whole())
