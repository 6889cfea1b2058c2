"""Weir in front of a server of the Messages API (here another Weir), with the same guarantees."""

import asyncio
from dataclasses import replace
from typing import Any

import orjson
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from engine.protocol import GenerationRequest, RequestError
from engine.upstream.messages.engine import MessagesEngine
from engine.upstream.pool.engine import PoolEngine
from engine.upstream.pool.replica import Replica
from hooks import Chunk, Verdict, emit, hold, redact, terminate
from tests.helpers import Script, ScriptedEngine, make_deltas, until
from tests.proxy.conftest import CHAT, Client, Serve
from tests.proxy.wire.messages.conftest import ASK, PATH, TOOL, both, thinking, without_identity

CHATS, RESPONSES = "/v1/chat/completions", "/v1/responses"
CHAT_TOOL: Any = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
IMAGE = "data:image/png;base64,AAAA"
RESPONSE_TOOL: Any = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}


def passing() -> Script:
    return Script(lambda chunk: emit(chunk.pending))


async def in_front_of(serve: Serve, engine: Any, *hooks: Any, **settings: Any) -> tuple[Client, Client]:
    back = await serve(engine)
    return await serve(MessagesEngine(back.url), *hooks, names=[], **settings), back


@pytest.mark.parametrize("hooks", [(), (passing(),)], ids=["bare", "hooks"])
async def test_a_message_passes_unchanged(serve: Serve, hooks: Any) -> None:
    front, back = await in_front_of(serve, ScriptedEngine(thinking), *hooks)
    passed, direct = [await both(client, tools=[TOOL]) for client in (front, back)]
    assert without_identity(passed) == without_identity(direct)


async def test_the_header_of_betas_reaches_an_upstream_of_this_api(serve: Serve) -> None:
    engine = ScriptedEngine(lambda r: make_deltas(["ok"]))
    front, _ = await in_front_of(serve, engine, passing())
    async with AsyncAnthropic(base_url=front.url, api_key="any", max_retries=0) as anthropic:
        await anthropic.beta.messages.create(**ASK, betas=["one-2025-05-14", "two"])
    (request,) = engine.requests
    assert request.extra["anthropic_beta"] == "one-2025-05-14,two"


async def test_each_apis_sdk_gets_text_reasoning_and_calls(serve: Serve) -> None:
    front, _ = await in_front_of(serve, ScriptedEngine(thinking), passing())
    async with AsyncOpenAI(base_url=f"{front.url}/v1", api_key="any", max_retries=0) as openai:
        chat: Any = CHAT["messages"]
        said = (await openai.chat.completions.create(model="m", messages=chat, tools=[CHAT_TOOL])).choices[0]
        assert (said.message.content, said.finish_reason) == ("I call.", "tool_calls")
        assert said.message.model_extra == {"reasoning_content": "Let me think."}
        calls: Any = [one.function for one in said.message.tool_calls or ()]
        assert [(call.name, call.arguments) for call in calls] == [("f", '{"a":1}'), ("g", "{}")]
        response = await openai.responses.create(model="m", input="Hi", tools=[RESPONSE_TOOL])
        assert response.output_text == "I call."
        items: Any = [item for item in response.output if item.type == "function_call"]
        assert [(item.name, item.arguments) for item in items] == [("f", '{"a":1}'), ("g", "{}")]
        streamed = ""
        stream = await openai.chat.completions.create(model="m", messages=chat, stream=True)
        async for chunk in stream:
            streamed += "".join(choice.delta.content or "" for choice in chunk.choices)
        assert streamed == "I call."
    async with AsyncAnthropic(base_url=front.url, api_key="any", max_retries=0) as anthropic:
        async with anthropic.messages.stream(**ASK) as events:
            message = await events.get_final_message()
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert message.usage.input_tokens == 2
    assert message.usage.cache_read_input_tokens == 1


async def test_a_conversation_with_tools_reaches_the_upstream_as_it_was(serve: Serve) -> None:
    engine = ScriptedEngine(lambda r: make_deltas(["ok"]))
    front, back = await in_front_of(serve, engine, passing())
    turns: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "Look"}, picture("https://a/b.png")]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I call."},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": "ü"}},
                {"type": "tool_use", "id": "t2", "name": "f", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "one"},
                {"type": "tool_result", "tool_use_id": "t2", "content": [picture(IMAGE)]},
                {"type": "text", "text": "Go on"},
            ],
        },
        {"role": "assistant", "content": "Then"},
    ]
    fields = {"system": "Be brief", "messages": turns, "tools": [TOOL], "stop_sequences": ["END"], "top_k": 4}
    fields |= {"tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True}}
    fields |= {"output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"a": 1}}}}
    for client in (front, back):
        status, body, _ = await client.post(PATH, {**ASK, **fields, "thinking": {"type": "disabled"}})
        assert status == 200, body
    seen, direct = engine.requests
    for name in ("messages", "tools", "tool_choice", "parallel_tool_calls", "extra"):
        assert getattr(seen, name) == getattr(direct, name), name
    assert seen.sampling == direct.sampling


def picture(url: str) -> dict[str, Any]:
    if url.startswith("data:"):
        source = {"type": "base64", "media_type": "image/png", "data": url.partition(",")[2]}
    else:
        source = {"type": "url", "url": url}
    return {"type": "image", "source": source}


def secret(chunk: Chunk) -> Verdict:
    found = chunk.pending.find("hunter2")
    if found >= 0:
        return redact([(found, found + 7, "***")])
    return emit(chunk.pending) if chunk.is_final else hold(min(6, len(chunk.pending)))


@pytest.mark.parametrize("channel", ["content", "reasoning"])
async def test_a_guard_redacts_what_the_upstream_says(serve: Serve, channel: Any) -> None:
    deltas = make_deltas(["well hun", "ter2 more"], channel=channel)
    front, _ = await in_front_of(serve, ScriptedEngine(lambda r: deltas), Script(secret))
    assert "well *** more" in str(await both(front))
    for path, body in ((CHATS, CHAT), (RESPONSES, {"model": "m", "input": "Hi"})):
        _, whole, _ = await front.post(path, body)
        stream = await front.stream(path, body)
        assert "well *** more" in str(whole)
        assert "hunter2" not in f"{whole}{stream.events}"


async def test_a_guard_that_terminates_closes_the_upstreams_connection(serve: Serve) -> None:
    def guard(chunk: Chunk) -> Verdict:
        found = chunk.pending.find("lo")
        return emit(chunk.pending) if found < 0 else terminate("no_secrets", after=found)

    engine = ScriptedEngine(lambda r: [*make_deltas(["hel", "lo "], finish=False), asyncio.Event()])
    front, _ = await in_front_of(serve, engine, Script(guard))
    stream = await front.stream(PATH, ASK)
    assert stream.events[-2][1]["delta"]["stop_details"]["explanation"] == "no_secrets"
    deltas = [data["delta"] for name, data in stream.events if name == "content_block_delta"]
    assert [delta["text"] for delta in deltas] == ["hel"]
    await until(lambda: not engine.running)
    assert engine.aborted == 1


async def test_a_client_that_leaves_ends_the_upstreams_work(serve: Serve) -> None:
    engine = ScriptedEngine(lambda r: [*make_deltas(["hello"], finish=False), asyncio.Event()])
    front, _ = await in_front_of(serve, engine, passing())
    async with front.http.post(front.url + PATH, json={**ASK, "stream": True}) as response:
        await response.content.readany()
        await until(lambda: engine.running == 1)
    await until(lambda: not engine.running)
    assert engine.aborted == 1


async def test_the_upstreams_models_are_listed(serve: Serve) -> None:
    front, _ = await in_front_of(serve, ScriptedEngine(lambda r: []))
    status, body = await front.get("/v1/models")
    assert (status, [model["id"] for model in orjson.loads(body)["data"]]) == (200, ["m"])


@pytest.mark.parametrize("hooks", [(), (passing(),)], ids=["bare", "hooks"])
async def test_a_refusal_of_the_upstream_is_the_callers(serve: Serve, hooks: Any) -> None:
    refusal = RequestError("This is hunter2.", param="messages")
    front, _ = await in_front_of(serve, ScriptedEngine(lambda r: [refusal]), *hooks)
    for stream in (False, True):
        status, body, _ = await front.post(CHATS, {**CHAT, "stream": stream})
        assert (status, body["error"]["type"]) == (400, "invalid_request_error")
        assert ("hunter2" in str(body)) == (not hooks)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHATS, {**CHAT, "n": 2}, "n"),
        (CHATS, {**CHAT, "logprobs": True}, "logprobs"),
        (CHATS, {**CHAT, "seed": 7}, "seed"),
        (CHATS, {**CHAT, "temperature": 1.5}, "temperature"),
        (CHATS, {**CHAT, "frequency_penalty": 0.5}, "frequency_penalty"),
        (CHATS, {**CHAT, "guided_json": {"type": "object"}}, "guided_json"),
        (CHATS, {**CHAT, "response_format": {"type": "json_object"}}, "response_format"),
        ("/v1/completions", {"model": "m", "prompt": "Hi"}, "prompt"),
    ],
)
async def test_what_the_api_cannot_express_is_refused(serve: Serve, path: str, body: Any, param: str) -> None:
    engine = ScriptedEngine(lambda r: [])
    front, _ = await in_front_of(serve, engine)
    for stream in (False, True):
        status, answer, _ = await front.post(path, {**body, "stream": stream})
        assert (status, answer["error"]["param"]) == (400, param)
    assert engine.requests == []


async def test_other_work_of_an_openai_server_is_not_asked_for(serve: Serve) -> None:
    front, _ = await in_front_of(serve, ScriptedEngine(lambda r: []))
    status, _, _ = await front.post("/v1/embeddings", {"model": "m", "input": "Hi"})
    assert status == 501


async def test_the_upstream_counts_a_prompt_as_hooks_let_it_go_on(serve: Serve) -> None:
    class Counting:
        def encode_chat(self, request: GenerationRequest) -> list[int]:
            return [0] * sum(len(message["content"]) for message in request.messages)

    engine = ScriptedEngine(lambda r: [])
    engine.tokenizer = Counting()  # type: ignore[assignment]
    back = await serve(engine)

    class Brief(Script):
        def on_request(self, request: GenerationRequest) -> GenerationRequest:
            hi = ({"role": "user", "content": "Hi"},)
            return replace(request, messages=hi) if request.messages else request

    for hooks, count in (((), 5), ((Brief(lambda chunk: emit(chunk.pending)),), 2)):
        front = await serve(PoolEngine([Replica("a", MessagesEngine(back.url))]), *hooks, names=[])
        asked = {**ASK, "messages": [{"role": "user", "content": "Hello"}]}
        assert (await front.post(f"{PATH}/count_tokens", asked))[1] == {"input_tokens": count}
