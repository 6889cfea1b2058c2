"""The items of an input are a chat."""

from typing import Any

import pytest

from tests.helpers import ScriptedEngine
from tests.proxy.conftest import Serve
from tests.proxy.response_helpers import ASK, PATH, TOOL, asked, saying, thinking


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
                {"type": "function_call", "call_id": "c3", "name": "h", "arguments": None},
                {"type": "function_call", "call_id": "c4", "name": "h"},
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
                        {"id": "c3", "type": "function", "function": {"name": "h", "arguments": "{}"}},
                        {"id": "c4", "type": "function", "function": {"name": "h", "arguments": "{}"}},
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
async def test_input_items_become_a_chat(serve: Serve, given: Any, messages: list[Any]) -> None:
    engine = saying("a")
    client = await serve(engine)
    request = await asked(client, engine, input=given, instructions="Be brief.")
    assert request.endpoint == "responses"
    assert list(request.messages) == [{"role": "system", "content": "Be brief."}, *messages]


async def test_output_items_can_be_input(serve: Serve) -> None:
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
