"""`/v1/responses`: its shapes, its events in matching pairs, its guards, and what it remembers."""

import asyncio
from collections import Counter
from typing import Any

import openai
import orjson
import pytest
from openai import AsyncOpenAI

from engine.backends.echo import EchoEngine
from engine.backends.openai.engine import OpenAIEngine
from engine.protocol import Delta, EngineError, ToolCall, Usage
from hooks import Chunk, Verdict, emit, hold, suppress, terminate
from tests.helpers import Script, ScriptedEngine, make_deltas, until
from tests.proxy.conftest import Client, Events, Serve, read_events

PATH = "/v1/responses"
ASK = {"model": "m", "input": "Hi"}
LOGPROBS = {"include": ["message.output_text.logprobs"], "top_logprobs": 1}
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}
CALL = ToolCall(0, "f", "upstreams-own")

PAIRS = {
    "response.completed": "response.created",
    "response.output_item.done": "response.output_item.added",
    "response.content_part.done": "response.content_part.added",
    "response.output_text.done": "response.output_text.delta",
    "response.reasoning_text.done": "response.reasoning_text.delta",
    "response.function_call_arguments.done": "response.function_call_arguments.delta",
}
PAIRS |= {"response.incomplete": "response.created", "response.failed": "response.created"}


def saying(*words: str, **finish: Any) -> ScriptedEngine:
    end = Delta(finish_reason=finish.pop("finish_reason", "stop"), usage=Usage(3, len(words), 1, 0), **finish)
    return ScriptedEngine(lambda r: [*make_deltas(words, finish=False), end])


def thinking(request: Any) -> list[Delta]:
    """Everything that an answer can hold."""
    return [
        *make_deltas(["Let ", "me ", "think."], channel="reasoning", finish=False),
        *make_deltas(["I ", "call."], first_id=10, finish=False),
        *make_deltas(['{"a":', "1}"], first_id=20, channel="tool_call", tool_call=CALL, finish=False),
        Delta(channel="tool_call", tool_call=ToolCall(1, "g")),
        Delta(finish_reason="tool_calls", usage=Usage(3, 7, 1, 3)),
    ]


def check_events(stream: Events) -> dict[str, Any]:
    """The response that a stream ended with; fails unless its events are numbered, named, nested in pairs and
    tell the same as the response does."""
    assert stream.status == 200
    assert stream.events[-1] == (None, "[DONE]")
    events = [data for _, data in stream.events[:-1]]
    assert [name for name, _ in stream.events[:-1]] == [data["type"] for data in events]
    assert [data["sequence_number"] for data in events] == list(range(len(events)))
    assert [data["type"] for data in events[:2]] == ["response.created", "response.in_progress"]
    events = [data for data in events if data["type"] not in ("error", "response.in_progress")]
    stack: list[str] = []
    for data in events:
        kind = data["type"]
        if kind in PAIRS:
            if kind != "response.failed":  # which leaves open what was
                assert stack.pop() == PAIRS[kind]
        elif not stack or stack[-1] != kind or not kind.endswith(".delta"):
            stack.append(kind)
    response: dict[str, Any] = events[-1]["response"]
    assert events[0]["response"]["id"] == response["id"]
    assert (events[0]["response"]["status"], events[0]["response"]["output"]) == ("in_progress", [])
    texts: Counter[int] = Counter()
    spoken = dict.fromkeys(range(len(response["output"])), "")
    for data in events:
        if data["type"].endswith(".delta"):
            item = response["output"][data["output_index"]]
            assert data["item_id"] == item["id"]
            assert data.get("content_index", 0) == 0
            spoken[data["output_index"]] += data["delta"]
        elif data["type"] == "response.output_item.done":
            assert data["item"] == response["output"][data["output_index"]]
            texts[data["output_index"]] += 1
    assert set(texts.values()) <= {1}
    assert list(spoken.values()) == [text_of(item) for item in response["output"]]
    return response


def text_of(item: dict[str, Any]) -> str:
    return str(item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"])


def without_identity(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_identity(v) for k, v in value.items() if k not in ("id", "call_id", "created_at")}
    return [without_identity(one) for one in value] if isinstance(value, list) else value


async def both(client: Client, body: dict[str, Any]) -> dict[str, Any]:
    """The answer, whole; fails unless a stream ends with the same."""
    status, whole, _ = await client.post(PATH, body)
    assert status == 200, whole
    assert without_identity(check_events(await client.stream(PATH, body))) == without_identity(whole)
    return dict(whole)


async def asked(client: Client, engine: ScriptedEngine, **fields: Any) -> Any:
    """The request that the engine got."""
    status, body, _ = await client.post(PATH, {**ASK, **fields})
    assert status == 200, body
    return engine.requests[-1]


async def test_a_response_is_whole(serve: Serve) -> None:
    client = await serve(saying("Hel", "lo"))
    response = await both(client, {**ASK, "metadata": {"a": "b"}, "user": "u", "instructions": "Be brief."})
    assert response["id"].startswith("resp_")
    (message,) = response.pop("output")
    assert message.pop("id").startswith("msg_")
    part = {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
    assert message == {"type": "message", "role": "assistant", "content": [part], "status": "completed"}
    assert response.pop("created_at") > 1e9
    assert response == {
        "id": response["id"],
        "object": "response",
        "status": "completed",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": "Be brief.",
        "max_output_tokens": None,
        "model": "m",
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": {
            "input_tokens": 3,
            "input_tokens_details": {"cached_tokens": 1},
            "output_tokens": 2,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 5,
        },
        "user": "u",
        "metadata": {"a": "b"},
    }


@pytest.mark.parametrize("hooks", [(), (Script(lambda c: emit(c.pending)),)])
async def test_items_come_in_order_of_appearance_under_our_own_ids(
    serve: Serve, hooks: tuple[Any, ...]
) -> None:
    client = await serve(ScriptedEngine(thinking), *hooks)
    response = await both(client, {**ASK, "tools": [TOOL, {**TOOL, "name": "g"}]})
    output = response["output"]
    assert [item["type"] for item in output] == ["reasoning", "message", "function_call", "function_call"]
    assert [text_of(item) for item in output] == ["Let me think.", "I call.", '{"a":1}', ""]
    assert output[0]["summary"] == []
    assert [item["name"] for item in output[2:]] == ["f", "g"]
    assert [item["id"].partition("_")[0] for item in output] == ["rs", "msg", "fc", "fc"]
    assert all(item["call_id"].startswith("call_") for item in output[2:])
    assert "upstreams-own" not in str(response)
    assert response["status"] == "completed"
    assert response["tools"][0] == {**TOOL, "description": None}


async def test_logprobs_are_asked_for_by_include(serve: Serve) -> None:
    client = await serve(saying("Hel", "lo"))
    response = await both(client, {**ASK, **LOGPROBS})
    first, _ = response["output"][0]["content"][0]["logprobs"]
    assert first == {
        "token": "Hel",
        "logprob": -0.25,
        "bytes": list(b"Hel"),
        "top_logprobs": [{"token": "alt:Hel", "logprob": -0.5, "bytes": list(b"alt:Hel")}],
    }
    stream = await client.stream(PATH, {**ASK, **LOGPROBS})
    deltas = [data for _, data in stream.events if data != "[DONE]" and "delta" in data]
    assert [len(data["logprobs"]) for data in deltas] == [1, 1]


@pytest.mark.parametrize(
    ("finish", "status", "reason"),
    [("length", "incomplete", "max_output_tokens"), ("content_filter", "incomplete", "content_filter")],
)
async def test_an_end_before_its_time_is_incomplete(
    serve: Serve, finish: Any, status: str, reason: str
) -> None:
    client = await serve(saying("Hel", finish_reason=finish))
    response = await both(client, {**ASK, "max_output_tokens": 1})
    assert (response["status"], response["incomplete_details"]) == (status, {"reason": reason})
    assert response["output"][0]["status"] == "incomplete"


async def test_the_stop_string_is_told(serve: Serve) -> None:
    client = await serve(saying("Hel", stop_reason="lo"))
    response = await both(client, {**ASK, "stop": "lo"})
    assert (response["status"], response["stop_reason"]) == ("completed", "lo")


async def test_no_text_is_a_message_of_none(serve: Serve) -> None:
    client = await serve(saying())
    response = await both(client, ASK)
    assert [text_of(item) for item in response["output"]] == [""]


@pytest.mark.parametrize(
    ("given", "messages"),
    [
        ("Hi", [{"role": "user", "content": "Hi"}]),
        ([{"role": "user", "content": "Hi"}], [{"role": "user", "content": "Hi"}]),
        (
            [
                {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be."}]},
                {"role": "user", "content": [{"type": "input_text", "text": t} for t in "ab"]},
            ],
            [
                {"role": "system", "content": "Be."},
                {"role": "user", "content": [{"type": "text", "text": t} for t in "ab"]},
            ],
        ),
        (
            [
                {"role": "user", "content": "Hi"},
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "?"},
                {
                    "type": "reasoning",
                    "summary": [],
                    "content": [{"type": "reasoning_text", "text": "Hm."}],
                    "status": None,
                },
                {
                    "type": "message",
                    "id": "msg_1",
                    "role": "assistant",
                    "status": "completed",
                    "content": [{"type": "output_text", "text": "One ", "annotations": [], "logprobs": []}],
                },
                {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"},
                {"type": "function_call", "call_id": "c2", "name": "g", "arguments": ""},
                {"role": "assistant", "content": "moment."},
                {"type": "function_call_output", "call_id": "c1", "output": "1"},
                {
                    "type": "function_call_output",
                    "call_id": "c2",
                    "output": [{"type": "input_text", "text": "2"}],
                },
            ],
            [
                {"role": "user", "content": "Hi"},
                {
                    "role": "assistant",
                    "content": "One moment.",
                    "reasoning_content": "Hm.",
                    "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                        {"id": "c2", "type": "function", "function": {"name": "g", "arguments": ""}},
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "1"},
                {"role": "tool", "tool_call_id": "c2", "content": "2"},
            ],
        ),
        (
            [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}],
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}],
        ),
        (
            [{"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}],
            [{"role": "assistant", "content": "No."}],
        ),
    ],
)
async def test_input_items_are_a_chat(serve: Serve, given: Any, messages: list[Any]) -> None:
    engine = saying("a")
    client = await serve(engine)
    request = await asked(client, engine, input=given, instructions="Be brief.")
    assert request.endpoint == "responses"
    assert list(request.messages) == [{"role": "system", "content": "Be brief."}, *messages]


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
        ("input.0.type", {"input": [{"type": "web_search_call"}]}),
        ("input.0.role", {"input": [{"role": "king", "content": "x"}]}),
        ("input.0", {"input": [{"role": "user"}]}),
        ("input.0", {"input": [{"type": "function_call_output", "output": "x"}]}),
        ("input.0.content.0.type", {"input": [{"role": "user", "content": [{"type": "input_file"}]}]}),
        ("input.0.content.0", {"input": [{"role": "user", "content": [{"type": "input_text"}]}]}),
        ("tools.0.type", {"tools": [{"type": "web_search"}]}),
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
async def test_what_the_caller_got_wrong_is_a_400(serve: Serve, param: str, fields: Any) -> None:
    client = await serve(saying("a"))
    status, body, _ = await client.post(PATH, {**ASK, **fields})
    assert (status, body["error"]["param"]) == (400, param)
    assert body["error"]["type"] == "invalid_request_error"


async def test_terminate_is_an_ordinary_end(serve: Serve) -> None:  # contract 3.3
    engine = saying("well ", "the ", "secret ", "is out")
    hook = Script(lambda c: terminate("no_secrets") if "secret" in c.text else emit(c.pending))
    client = await serve(engine, hook)
    response = await both(client, {**ASK, **LOGPROBS})
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "content_filter"}
    assert response["stop_reason"] == "no_secrets"
    assert text_of(response["output"][0]) == "well the "
    assert "secret " not in str(response)
    assert (engine.running, engine.aborted) == (0, 2)


async def test_a_rewrite_and_a_suppression_leave_no_trace(serve: Serve) -> None:  # contract 3.2, 3.6
    def guard(chunk: Chunk) -> Verdict:
        if chunk.channel == "reasoning" or chunk.tool_name == "f":
            return suppress()
        return emit(chunk.pending.replace("call", "***"))

    client = await serve(ScriptedEngine(thinking), Script(guard))
    response = await both(client, {**ASK, **LOGPROBS})
    assert [text_of(item) for item in response["output"]] == ["I ***.", ""]
    assert [item.get("name") for item in response["output"]] == [None, "g"]
    stream = await client.stream(PATH, {**ASK, **LOGPROBS})
    for trace in ("think", "call.", '"f"'):
        assert trace not in str(stream.events)
    assert [lp["token"] for lp in response["output"][0]["content"][0]["logprobs"]] == ["I "]


async def test_everything_suppressed_is_a_message_of_nothing(serve: Serve) -> None:
    client = await serve(saying("my ", "hunter2"), Script(lambda c: suppress()))
    response = await both(client, {**ASK, **LOGPROBS})
    assert [text_of(item) for item in response["output"]] == [""]
    assert "hunter2" not in str(response)


async def test_what_a_hook_let_go_late_is_an_item_of_its_own(serve: Serve) -> None:
    engine = ScriptedEngine(thinking)

    def guard(chunk: Chunk) -> Verdict:
        if chunk.is_final or chunk.channel != "content":
            return emit(chunk.pending)
        return hold(min(3, len(chunk.pending)))

    client = await serve(engine, Script(guard))
    response = await both(client, ASK)
    texts = [text_of(item) for item in response["output"]]
    assert texts == ["Let me think.", "I ca", '{"a":1}', "ll.", ""]
    await asked(client, engine, input="Go on.", previous_response_id=response["id"])
    assert engine.requests[-1].messages[1]["content"] == "I call."


async def test_a_hook_that_raises_at_once_is_a_500(serve: Serve) -> None:  # contract 4.2
    client = await serve(
        saying("hunter2"), Script(lambda c: None if c.request.model == "m" else emit(c.pending))
    )
    for stream in (True, False):
        status, body, _ = await client.post(PATH, {**ASK, "stream": stream})
        assert (status, body["error"]["type"]) == (500, "guardrail_error")
        assert "hunter2" not in str(body)


async def test_a_hook_that_raises_later_is_one_error_event_then_done(serve: Serve) -> None:  # contract 4.2
    def guard(chunk: Chunk) -> Verdict:
        if "hunter2" in chunk.text:
            raise ValueError(chunk.text)
        return emit(chunk.pending)

    engine = saying("fine ", "hunter2", " more")
    client = await serve(engine, Script(guard))
    stream = await client.stream(PATH, ASK)
    names = [name for name, _ in stream.events]
    assert names[-3:] == ["response.failed", "error", None]
    assert names.count("error") == 1
    failed, (_, error), done = stream.events[-3:]
    assert failed[1]["response"]["status"] == "failed"
    assert failed[1]["response"]["error"]["code"] == "server_error"
    assert [text_of(item) for item in failed[1]["response"]["output"]] == ["fine "]
    assert error["error"]["type"] == "guardrail_error"
    assert (error["type"], error["message"]) == ("error", error["error"]["message"])
    assert done == (None, "[DONE]")
    assert "hunter2" not in str(stream.events)
    check_events(stream)
    status, _ = await client.get(f"{PATH}/{failed[1]['response']['id']}")
    assert status == 404
    assert (engine.running, engine.aborted) == (0, 1)


async def test_an_engine_that_fails_in_silence_still_begins_with_created(serve: Serve) -> None:
    error = asyncio.Event()
    client = await serve(
        ScriptedEngine(lambda r: [error, EngineError("It broke.")]), keep_alive_interval=0.01
    )
    async with client.http.post(client.url + PATH, json={**ASK, "stream": True}) as response:
        begun = await response.content.readline()
        error.set()
        events, _ = read_events(begun + await response.read())
    assert [name for name, _ in events[:3]] == [
        "response.created",
        "response.in_progress",
        "response.failed",
    ]


async def test_a_client_that_leaves_frees_its_slot(serve: Serve) -> None:
    engine = ScriptedEngine(lambda r: [*make_deltas(["a"], finish=False), asyncio.Event()])
    client = await serve(engine, keep_alive_interval=3600)
    async with client.http.post(client.url + PATH, json={**ASK, "stream": True}) as response:
        assert b"response.created" in await response.content.readline()
        assert engine.running == 1
    await until(lambda: not engine.running)
    assert engine.aborted == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_previous_response_id_goes_on_from_what_was_released(serve: Serve, stream: bool) -> None:
    engine = saying("my ", "hunter2")
    client = await serve(engine, Script(lambda c: emit(c.pending.replace("hunter2", "***"))))

    async def respond(**fields: Any) -> str:
        if stream:
            return str(check_events(await client.stream(PATH, {**ASK, **fields}))["id"])
        return str((await client.post(PATH, {**ASK, **fields}))[1]["id"])

    first = await respond(instructions="Only now.")
    second = await respond(input="And?", previous_response_id=first)
    await respond(input="So?", previous_response_id=second, instructions="Then.")
    said = {"role": "assistant", "content": "my ***"}
    assert list(engine.requests[-1].messages) == [
        {"role": "system", "content": "Then."},
        {"role": "user", "content": "Hi"},
        said,
        {"role": "user", "content": "And?"},
        said,
        {"role": "user", "content": "So?"},
    ]


async def test_output_items_are_input(serve: Serve) -> None:
    engine = ScriptedEngine(thinking)
    client = await serve(engine)
    _, first, _ = await client.post(PATH, {**ASK, "tools": [TOOL]})
    outputs = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "2"}
        for item in first["output"][2:]
    ]
    bare = [{k: v for k, v in item.items() if k != "id"} for item in first["output"]]
    references = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    user = {"role": "user", "content": "Hi"}
    chats = []
    for replayed in (first["output"], bare, references):
        chats.append((await asked(client, engine, input=[user, *replayed, *outputs])).messages)
    chats.append((await asked(client, engine, input=outputs, previous_response_id=first["id"])).messages)
    assert chats[1:] == chats[:1] * 3
    assert [message["role"] for message in chats[0]] == ["user", "assistant", "tool", "tool"]
    assert chats[0][1]["tool_calls"][0]["id"] == chats[0][2]["tool_call_id"]
    status, body, _ = await client.post(PATH, {**ASK, "input": [{"type": "item_reference", "id": "msg_0"}]})
    assert (status, body["error"]["type"]) == (404, "not_found_error")


async def test_a_stored_response_is_read_and_forgotten(serve: Serve) -> None:
    client = await serve(saying("a"))
    _, response, _ = await client.post(PATH, ASK)
    path = f"{PATH}/{response['id']}"
    status, body = await client.get(path)
    assert (status, orjson.loads(body)) == (200, response)
    async with client.http.delete(client.url + path) as answer:
        assert await answer.json() == {"id": response["id"], "object": "response", "deleted": True}
    assert (await client.get(path))[0] == 404
    async with client.http.delete(client.url + path) as answer:
        assert answer.status == 404


async def test_a_response_that_is_not_stored_is_unknown(serve: Serve) -> None:
    client = await serve(saying("a"))
    _, response, _ = await client.post(PATH, {**ASK, "store": False})
    assert response["store"] is False
    assert (await client.get(f"{PATH}/{response['id']}"))[0] == 404
    status, body, _ = await client.post(PATH, {**ASK, "previous_response_id": response["id"]})
    assert (status, body["error"]["code"]) == (400, "previous_response_not_found")
    assert body["error"]["param"] == "previous_response_id"


@pytest.mark.parametrize("capacity", [0, 2])
async def test_the_least_recently_used_is_forgotten_first(serve: Serve, capacity: int) -> None:
    client = await serve(saying("a"), max_stored_responses=capacity)
    ids = []
    for i in range(3):
        if i == 2:
            await client.get(f"{PATH}/{ids[0]}")
        _, response, _ = await client.post(PATH, ASK)
        assert response["store"] is bool(capacity)
        ids.append(response["id"])
    kept = [(await client.get(f"{PATH}/{one}"))[0] == 200 for one in ids]
    assert kept == ([True, False, True] if capacity else [False] * 3)


async def test_a_response_is_its_keys_own(serve: Serve) -> None:
    client = await serve(saying("a"), api_key=["one", "two"])
    one, two = ({"Authorization": f"Bearer {key}"} for key in ("one", "two"))
    _, response, _ = await client.post(PATH, ASK, headers=one)
    path, again = f"{PATH}/{response['id']}", {**ASK, "previous_response_id": response["id"]}
    item = {**ASK, "input": [{"type": "item_reference", "id": response["output"][0]["id"]}]}
    assert (await client.get(path))[0] == 401
    assert (await client.get(path, headers=two))[0] == 404
    assert (await client.post(PATH, again, headers=two))[0] == 400
    assert (await client.post(PATH, item, headers=two))[0] == 404
    async with client.http.delete(client.url + path, headers=two) as answer:
        assert answer.status == 404
    assert (await client.get(path, headers=one))[0] == 200
    assert (await client.post(PATH, again, headers=one))[0] == 200
    assert (await client.post(PATH, item, headers=one))[0] == 200


async def test_it_has_metrics_of_its_own(serve: Serve) -> None:
    client = await serve(saying("a"))
    await client.post(PATH, ASK)
    assert (
        b'weir_requests_total{endpoint="responses",outcome="finished"} 1.0'
        in (await client.get("/metrics"))[1]
    )


async def test_an_upstream_is_asked_for_a_chat(serve: Serve) -> None:
    engine = ScriptedEngine(thinking)
    back = await serve(engine)
    front = await serve(OpenAIEngine(back.url), names=[])
    response = await both(front, {**ASK, "tools": [TOOL], "max_output_tokens": 9, "instructions": "Be."})
    assert [text_of(item) for item in response["output"]] == ["Let me think.", "I call.", '{"a":1}', ""]
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


async def test_the_sdk_raises_what_fails_inside_a_stream(serve: Serve) -> None:
    client = await serve(saying("a", "b"), Script(lambda c: None if c.text == "ab" else emit(c.pending)))
    async with AsyncOpenAI(base_url=client.url + "/v1", api_key="none", max_retries=0) as sdk:
        seen = []
        with pytest.raises(openai.APIError, match="guardrail failed"):
            async for event in await sdk.responses.create(model="m", input="Hi", stream=True):
                seen.append(event.type)
    assert seen[-1] == "response.failed"
