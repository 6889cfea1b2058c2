"""`POST /v1/responses`: its fields, and OpenAI's SDK as its client."""

import asyncio
from collections import Counter
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from engine.upstream.echo import EchoEngine
from engine.upstream.openai.engine import OpenAIEngine
from hooks import emit
from tests.helpers import Script, ScriptedEngine, make_deltas, until
from tests.proxy.conftest import Serve
from tests.proxy.response_helpers import ASK, LOGPROBS, PATH, TOOL, asked, both, saying, text_of, thinking


async def test_fields_reach_the_engine_in_their_chat_form(serve: Serve) -> None:
    engine = saying("a")
    client = await serve(engine)
    schema = {"name": "s", "schema": {"type": "object"}, "strict": True}
    request = await asked(
        client,
        engine,
        tools=[TOOL],
        tool_choice={"type": "function", "name": "f"},
        parallel_tool_calls=False,
        text={"format": {"type": "json_schema", **schema}, "verbosity": "low"},
        reasoning={"effort": "low", "summary": "auto"},
        max_output_tokens=7,
        temperature=0.5,
        top_k=3,
        min_p=0.1,
        seed=1,
        stop=["x"],
        truncation="auto",
        service_tier="auto",
        background=False,
        store=False,
        max_tool_calls=3,
        unknown=1,
    )
    function = {"name": "f", "parameters": {"type": "object"}, "strict": True}
    assert request.tools == ({"type": "function", "function": function},)
    assert request.tool_choice == {"type": "function", "function": {"name": "f"}}
    assert request.parallel_tool_calls is False
    assert request.extra == {
        "response_format": {"type": "json_schema", "json_schema": schema},
        "verbosity": "low",
        "reasoning_effort": "low",
        "service_tier": "auto",
        "unknown": 1,
    }
    sampling = request.sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_k, sampling.min_p) == (7, 0.5, 3, 0.1)
    assert (sampling.seed, sampling.stop, sampling.logprobs) == (1, ("x",), None)
    request = await asked(client, engine, text={"format": {"type": "json_object"}}, tool_choice="auto")
    assert request.extra == {"response_format": {"type": "json_object"}}
    assert (await asked(client, engine, text={"format": {"type": "text"}}, **LOGPROBS)).extra == {}


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("input", {"input": 7}),
        ("input", {"input": []}),
        ("input", {"input": None}),
        ("input.0.type", {"input": [{"type": "mesage"}]}),
        ("input.0.role", {"input": [{"role": "king", "content": "x"}]}),
        ("input.0", {"input": [{"role": "user"}]}),
        ("input.0", {"input": [{"type": "function_call_output", "output": "x"}]}),
        ("input.0.content.0.type", {"input": [{"role": "user", "content": [{"type": "input_audio"}]}]}),
        ("input.0.content.0", {"input": [{"role": "user", "content": [{"type": "input_file"}]}]}),
        ("input.0.content.0", {"input": [{"role": "user", "content": [{"type": "input_text"}]}]}),
        ("tools.0.type", {"tools": [{"name": "f"}]}),
        ("tools.0.name", {"tools": [{"type": "function", "function": {"name": "f"}}]}),
        ("tool_choice", {"tools": [TOOL], "tool_choice": {"type": "function", "name": "other"}}),
        ("tool_choice", {"tools": [TOOL], "tool_choice": {"type": "web_search"}}),
        ("tool_choice", {"tool_choice": "required"}),
        ("background", {"background": True}),
        ("conversation", {"conversation": "conv_1"}),
        ("prompt", {"prompt": {"id": "pmpt_1"}}),
        ("n", {"n": 2}),
        ("max_tokens", {"max_tokens": 5}),
        ("max_output_tokens", {"max_output_tokens": 0}),
        ("return_token_ids", {"return_token_ids": True}),
        ("top_logprobs", {"top_logprobs": 21}),
        ("top_logprobs", {"top_logprobs": 1}),
        ("text.format", {"text": {"format": {"type": "xml"}}}),
        ("text.format", {"text": {"format": {"type": "json_schema"}}}),
        ("temperature", {"temperature": 3}),
        ("truncation", {"truncation": "never"}),
        ("stream_options", {"stream_options": {"include_obfuscation": False}}),
        ("hooks", {"hooks": ["mine"]}),
    ],
)
async def test_a_wrong_field_is_a_400(serve: Serve, param: str, fields: Any) -> None:
    client = await serve(saying("a"))
    status, body, _ = await client.post(PATH, {**ASK, **fields})
    assert (status, body["error"]["param"]) == (400, param)
    assert body["error"]["type"] == "invalid_request_error"


async def test_a_client_that_leaves_frees_its_slot(serve: Serve) -> None:
    engine = ScriptedEngine(lambda r: [*make_deltas(["a"], finish=False), asyncio.Event()])
    client = await serve(engine, keep_alive_interval=3600)
    async with client.http.post(client.url + PATH, json={**ASK, "stream": True}) as response:
        assert b"response.created" in await response.content.readline()
        assert engine.running == 1
    await until(lambda: not engine.running)
    assert engine.aborted == 1


async def test_responses_have_metrics_of_their_own(serve: Serve) -> None:
    client = await serve(saying("a"))
    await client.post(PATH, ASK)
    assert (
        b'weir_requests_total{endpoint="responses",outcome="finished"} 1.0'
        in (await client.get("/metrics"))[1]
    )


async def test_reasoning_can_be_left_out(serve: Serve) -> None:
    client = await serve(ScriptedEngine(thinking))
    response = await both(client, {**ASK, "tools": [TOOL], "include_reasoning": False})
    assert [item["type"] for item in response["output"]] == ["message", "function_call", "function_call"]
    assert response["usage"]["output_tokens_details"] == {"reasoning_tokens": 3}


async def test_reasoning_of_an_upstream_can_be_left_out(serve: Serve) -> None:
    """The upstream does not learn of it: some refuse the field, and hooks see the reasoning of all."""
    engine = ScriptedEngine(thinking)
    back = await serve(engine)
    front = await serve(OpenAIEngine(back.url), names=[])
    response = await both(front, {**ASK, "tools": [TOOL], "include_reasoning": False})
    assert [item["type"] for item in response["output"]] == ["message", "function_call", "function_call"]
    assert engine.requests[-1].extra == {}


async def test_an_upstream_gets_a_chat(serve: Serve) -> None:
    engine = ScriptedEngine(thinking)
    back = await serve(engine)
    front = await serve(OpenAIEngine(back.url), names=[])
    response = await both(front, {**ASK, "tools": [TOOL], "max_output_tokens": 9, "instructions": "Be."})
    assert [text_of(item) for item in response["output"]] == ["Let me think.", "I call.", '{"a":1}', "{}"]
    request = engine.requests[-1]
    assert (request.endpoint, request.sampling.max_tokens) == ("chat", 9)
    assert [message["role"] for message in request.messages] == ["system", "user"]
    assert request.tools[0]["function"]["name"] == "f"
    assert request.extra == {}


@pytest.fixture
async def sdk(serve: Serve) -> Any:
    client = await serve(EchoEngine(), names=["m"])
    async with AsyncOpenAI(base_url=client.url + "/v1", api_key="none", max_retries=0) as sdk:
        yield sdk


async def test_the_sdk_reads_a_whole_response(sdk: AsyncOpenAI) -> None:
    first = await sdk.responses.create(model="m", input="Hello there")
    assert (first.output_text, first.status) == ("Hello there", "completed")
    assert first.usage is not None
    assert first.usage.output_tokens == 2
    again: Any = [{"role": "user", "content": "One"}, *first.output, {"role": "user", "content": "Two"}]
    assert (await sdk.responses.create(model="m", input=again)).output_text == "Two"
    chained = await sdk.responses.create(model="m", input="Three", previous_response_id=first.id)
    assert chained.previous_response_id == first.id
    assert (await sdk.responses.retrieve(first.id)).output_text == "Hello there"
    await sdk.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        await sdk.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError, match="not found"):
        await sdk.responses.create(model="m", input="Four", previous_response_id=first.id)


async def test_the_sdk_reads_a_stream(sdk: AsyncOpenAI) -> None:
    events = [e async for e in await sdk.responses.create(model="m", input="Hello there", stream=True)]
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == "Hello there"
    assert events[-1].type == "response.completed"
    async with sdk.responses.stream(model="m", input="Hello there") as stream:
        snapshots = [e.snapshot async for e in stream if e.type == "response.output_text.delta"]
        final = await stream.get_final_response()
    assert snapshots == ["Hello", "Hello there"]
    assert final.output_text == "Hello there"


async def test_the_sdks_stream_helper_reads_every_item(serve: Serve) -> None:
    client = await serve(ScriptedEngine(thinking))
    async with AsyncOpenAI(base_url=client.url + "/v1", api_key="none", max_retries=0) as sdk:
        tools: Any = [TOOL, {**TOOL, "name": "g", "strict": False}]
        async with sdk.responses.stream(model="m", input="Hi", tools=tools) as stream:
            kinds = Counter([e.type async for e in stream])
            final = await stream.get_final_response()
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call", "function_call"]
    assert kinds["response.reasoning_text.delta"] == 3
    assert kinds["response.function_call_arguments.delta"] == 3


async def test_the_sdk_raises_a_failure_inside_a_stream(serve: Serve) -> None:
    client = await serve(saying("a", "b"), Script(lambda c: None if c.text == "ab" else emit(c.pending)))
    async with AsyncOpenAI(base_url=client.url + "/v1", api_key="none", max_retries=0) as sdk:
        seen = []
        with pytest.raises(openai.APIError, match="guardrail failed"):
            async for event in await sdk.responses.create(model="m", input="Hi", stream=True):
                seen.append(event.type)
    assert seen[-1] == "response.failed"
