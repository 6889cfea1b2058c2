"""Hooks that read prompts, as a client sees them: on every endpoint, streaming and not."""

import logging
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from engine.backends.echo import EchoEngine
from engine.backends.openai.engine import OpenAIEngine
from engine.protocol import Delta, GenerationRequest
from hooks import emit, prompt_texts, refuse, with_prompt_texts
from hooks.builtin.phrases import Phrases
from tests.helpers import Script, ScriptedEngine, make_deltas
from tests.proxy.conftest import CHAT, COMPLETION, Client, Serve
from tests.proxy.response_helpers import check_events

RESPONSE = {"model": "m", "input": "Hi"}
CHATS, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
ENDPOINTS = [(CHATS, CHAT, "messages"), (COMPLETIONS, COMPLETION, "prompt"), (RESPONSES, RESPONSE, "input")]
every_endpoint = pytest.mark.parametrize(
    ("path", "body", "param"), ENDPOINTS, ids=["chat", "completions", "responses"]
)
streaming_or_not = pytest.mark.parametrize("stream", [False, True])


class Reader(Script):
    """Refuses prompts that contain `hunter2`, with an answer if they contain `please`. Removes `bluebird`
    from prompts."""

    def __init__(self) -> None:
        super().__init__(lambda chunk: emit(chunk.pending))

    def on_request(self, request: GenerationRequest) -> object:
        texts = " ".join(text.text for text in prompt_texts(request))
        if "hunter2" in texts:
            return refuse("no_passwords", "I cannot." if "please" in texts else None)
        return with_prompt_texts(request, lambda text: text.text.replace("bluebird", "[name]"))


def with_prompt(body: dict[str, Any], text: str) -> dict[str, Any]:
    if "messages" in body:
        return {**body, "messages": [{"role": "user", "content": text}]}
    return {**body, "prompt" if "prompt" in body else "input": text}


def engine() -> ScriptedEngine:
    return ScriptedEngine(lambda r: [d for i in range(r.num_outputs) for d in make_deltas("ok", index=i)])


@every_endpoint
@streaming_or_not
async def test_a_refused_prompt_is_a_400_with_the_reason_and_without_the_prompt(
    serve: Serve, path: str, body: dict[str, Any], param: str, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:  # contract 8.8
    asked = engine()
    client = await serve(asked, Reader())
    with caplog.at_level(logging.INFO):
        status, answer, _ = await client.post(path, {**with_prompt(body, "it is hunter2"), "stream": stream})
    assert (status, answer) == (
        400,
        {
            "error": {
                "message": "The prompt was refused: no_passwords",
                "type": "invalid_request_error",
                "param": param,
                "code": "content_filter",
            }
        },
    )
    assert asked.requests == []
    _, metrics = await client.get("/metrics")
    assert b'weir_hook_verdicts_total{action="refuse",hook="hook0"} 1.0' in metrics
    assert b'outcome="refused"} 1.0' in metrics
    assert "hunter2" not in metrics.decode() + caplog.text


async def answer_of(client: Client, path: str, body: dict[str, Any], stream: bool) -> dict[str, Any]:
    """The answer, whole or streamed: its text, finish reason, stop reason and usage."""
    if path == RESPONSES:
        if stream:
            response = check_events(await client.stream(path, body))
        else:
            _, response, _ = await client.post(path, body)
        details = response["incomplete_details"] or {}
        text = response["output"][0]["content"][0]["text"]
        usage = response["usage"]
        counts = (usage["input_tokens"], usage["output_tokens"])
        return {
            "text": text,
            "finish": details.get("reason"),
            "why": response["stop_reason"],
            "usage": counts,
        }
    if stream:
        events = await client.stream(path, {**body, "stream_options": {"include_usage": True}})
        *_, finish, usage = events.chunks
        choice, text = finish["choices"][0], events.content()
    else:
        _, usage, _ = await client.post(path, body)
        choice = usage["choices"][0]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
    counts = (usage["usage"]["prompt_tokens"], usage["usage"]["completion_tokens"])
    return {"text": text, "finish": choice["finish_reason"], "why": choice["stop_reason"], "usage": counts}


@every_endpoint
@streaming_or_not
async def test_a_refusal_with_a_text_is_an_answer(
    serve: Serve, path: str, body: dict[str, Any], param: str, stream: bool
) -> None:  # contract 8.8
    asked = engine()
    client = await serve(asked, Reader(), Script(lambda chunk: emit(chunk.pending.upper())))
    got = await answer_of(client, path, with_prompt(body, "hunter2, please"), stream)
    assert got == {"text": "I CANNOT.", "finish": "content_filter", "why": "no_passwords", "usage": (0, 0)}
    assert asked.requests == []


@pytest.mark.parametrize(("path", "body"), [(CHATS, CHAT), (COMPLETIONS, COMPLETION)])
async def test_every_choice_gets_the_refusals_text(serve: Serve, path: str, body: dict[str, Any]) -> None:
    """Contract 8.8."""
    client = await serve(engine(), Reader())
    asked = with_prompt({**body, "n": 3, "logprobs": 1 if path == COMPLETIONS else True}, "hunter2, please")
    stream = await client.stream(path, asked)
    assert [stream.content(i) for i in range(3)] == ["I cannot."] * 3
    _, whole, _ = await client.post(path, asked)
    assert [(c["index"], c["finish_reason"], c["logprobs"]) for c in whole["choices"]] == [
        (i, "content_filter", None) for i in range(3)
    ]


@every_endpoint
@streaming_or_not
async def test_the_engine_gets_the_rewritten_prompt(
    serve: Serve, path: str, body: dict[str, Any], param: str, stream: bool
) -> None:
    asked, reader = engine(), Reader()
    client = await serve(asked, reader)
    body = {**with_prompt(body, "say bluebird"), "user": "u"}
    if stream:
        await client.stream(path, body)
    else:
        await client.post(path, body)
    (request,) = asked.requests
    assert [text.text for text in prompt_texts(request)] == ["say [name]"]
    assert (request.user, request.stream) == (sha256(b"u").hexdigest(), stream)
    shown = replace(request, user="u")
    assert all(chunk.request == shown for chunk in reader.chunks if chunk.request_id != "weir-self-test")


async def test_an_echo_repeats_the_rewritten_prompt(serve: Serve) -> None:
    client = await serve(EchoEngine(), Reader())
    asked = {**COMPLETION, "prompt": "say bluebird", "echo": True, "logprobs": 1, "max_tokens": 0}
    _, whole, _ = await client.post(COMPLETIONS, asked)
    (choice,) = whole["choices"]
    assert choice["text"] == "".join(choice["logprobs"]["tokens"]) == "say [name]"
    assert "bluebird" not in str(whole)


async def test_token_ids_that_hooks_cannot_read_are_refused(serve: Serve) -> None:  # contract 8.9
    asked = engine()
    client = await serve(asked, Reader())
    for prompt in ([1, 2], [[1, 2]]):
        status, answer, _ = await client.post(COMPLETIONS, {**COMPLETION, "prompt": prompt})
        assert (status, answer["error"]["param"]) == (400, "prompt")
    assert asked.requests == []


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "hunter2"}]}]},
        {"messages": [{"role": "system", "content": "hunter2"}, *CHAT["messages"]]},
        {"messages": [{"role": "tool", "tool_call_id": "c", "content": "hunter2"}]},
        {"messages": [{"role": "user", "name": "hunter2", "content": "Hi"}]},
        {"messages": [{"role": "user", "content": "Hi", "more": {"a": ["hunter2"]}}]},
        {"tools": [{"type": "function", "function": {"name": "f", "description": "hunter2"}}]},
        {"documents": [{"text": "hunter2"}]},
        {"chat_template_kwargs": {"greeting": "hunter2"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "hunter2"}}},
    ],
    ids=str,
)
async def test_hooks_see_every_text_of_a_chat(serve: Serve, body: dict[str, Any]) -> None:
    """Contract 8.1, 8.6."""
    asked = engine()
    client = await serve(asked, Reader())
    status, answer, _ = await client.post(CHATS, {**CHAT, **body})
    assert (status, answer["error"]["code"], asked.requests) == (400, "content_filter", [])


@pytest.mark.parametrize(
    "body",
    [
        {"instructions": "hunter2"},
        {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": "hunter2"}'}]},
        {"input": [{"type": "function_call_output", "call_id": "c", "output": "hunter2"}]},
        {"input": [{"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hunter2"}]}]},
        {"tools": [{"type": "function", "name": "f", "description": "hunter2"}]},
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"title": "hunter2"}}}},
    ],
    ids=str,
)
async def test_hooks_see_every_text_of_a_response(serve: Serve, body: dict[str, Any]) -> None:
    """Contract 8.1, 8.6."""
    asked = engine()
    client = await serve(asked, Reader())
    status, answer, _ = await client.post(RESPONSES, {**RESPONSE, **body})
    assert (status, answer["error"]["code"], asked.requests) == (400, "content_filter", [])


async def test_an_upstream_gets_only_the_rewritten_prompt(serve: Serve) -> None:  # contract 8.1
    upstream = engine()
    back = await serve(upstream)
    front = await serve(OpenAIEngine(back.url), Reader(), names=[])
    body = {**CHAT, "messages": [{"role": "user", "content": "bluebird"}], "documents": ["bluebird"]}
    status, _, _ = await front.post(CHATS, body)
    assert (status, "bluebird" in repr(upstream.requests)) == (200, False)
    assert upstream.requests[0].extra["documents"] == ["[name]"]
    status, answer, _ = await front.post(COMPLETIONS, {**COMPLETION, "prompt_embeds": "AAAA"})
    assert (status, answer["error"]["param"]) == (400, "prompt_embeds")


async def test_hooks_read_a_continued_conversation_whole(serve: Serve) -> None:
    """The store keeps the caller's own text, so hooks read all of it each time."""
    asked = engine()
    client = await serve(asked, Reader())
    _, first, _ = await client.post(RESPONSES, {**RESPONSE, "input": "I am bluebird"})
    _, _, _ = await client.post(RESPONSES, {**RESPONSE, "previous_response_id": first["id"]})
    assert [m["content"] for m in asked.requests[-1].messages] == ["I am [name]", "ok", "Hi"]
    _, refused, _ = await client.post(RESPONSES, {**RESPONSE, "input": "hunter2, please"})
    assert refused["incomplete_details"] == {"reason": "content_filter"}
    on = {**RESPONSE, "previous_response_id": refused["id"], "stream": False}
    _, again, _ = await client.post(RESPONSES, on)
    assert (again["output"][0]["content"][0]["text"], len(asked.requests)) == ("I cannot.", 2)


async def test_a_hook_of_prompts_does_not_see_the_answer_as_a_prompt(serve: Serve) -> None:
    """A hook of prompts leaves answers unchanged, and a hook of answers leaves prompts unchanged."""
    said = ScriptedEngine(lambda r: [*make_deltas(["bluebird"], finish=False), Delta(finish_reason="stop")])
    client = await serve(said, Reader(), Phrases(["heron"]))
    body = {**CHAT, "messages": [{"role": "user", "content": "heron"}]}
    _, whole, _ = await client.post(CHATS, body)
    assert whole["choices"][0]["message"]["content"] == "bluebird"
    assert said.requests[0].messages[0]["content"] == "heron"


@every_endpoint
@streaming_or_not
async def test_a_hook_that_fails_on_a_prompt_is_a_500(
    serve: Serve, path: str, body: dict[str, Any], param: str, stream: bool
) -> None:  # contract 4.2, 8.1
    class Fails(Script):
        def on_request(self, request: GenerationRequest) -> object:
            if "Hello" not in prompt_texts(request)[0].text:  # the prompt of the self-test has Hello
                raise ValueError(f"I saw {request.messages}")
            return request

    asked = engine()
    client = await serve(asked, Fails(lambda chunk: emit(chunk.pending)))
    status, answer, _ = await client.post(path, {**with_prompt(body, "hunter2"), "stream": stream})
    assert (status, answer["error"]["type"], asked.requests) == (500, "guardrail_error", [])
    assert "hunter2" not in str(answer)
    assert "ValueError" not in str(answer)
