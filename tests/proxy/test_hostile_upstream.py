"""Whatever an upstream sends, a client gets no text that no hook was shown, and an end to every answer."""

import json
from typing import Any

import orjson
import pytest

from engine.backends.openai.engine import OpenAIEngine
from engine.protocol import Delta, Usage
from hooks import emit
from tests.engine.backends.conftest import FakeUpstream
from tests.engine.backends.conftest import upstream as _upstream
from tests.helpers import Script, ScriptedEngine, make_deltas
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
    engine = client.server.service.engine
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
