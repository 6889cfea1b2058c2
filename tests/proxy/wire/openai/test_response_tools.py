"""The kinds of tools that a response may have, in front of an engine that knows functions alone."""

import json
from typing import Any

import orjson
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from engine.protocol import Delta, GenerationRequest, ToolCall
from engine.upstream.openai.engine import OpenAIEngine
from hooks import Chunk, Verdict, emit, hold, redact, suppress, terminate
from hooks.builtin.secrets import Secrets
from hooks.prompts.texts import prompt_texts
from proxy.wire.openai.response_tools import action_of, arguments_of, chat_name, text_of
from tests.helpers import Script, ScriptedEngine, make_deltas
from tests.proxy.conftest import Serve
from tests.proxy.response_helpers import ASK, PATH, TOOL, asked, both, saying

PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Changes files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin Patch"'},
}
CRM = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [
        {"type": "function", "name": "find", "description": "Finds.", "defer_loading": True},
        {"type": "custom", "name": "note"},
        {"type": "web_search"},
    ],
}
SHELL = {"type": "local_shell"}
SEARCH = {"type": "web_search", "external_web_access": False}
TOOLS = [TOOL, PATCH, CRM, SHELL, SEARCH, {"type": "from_the_future", "x": 1}]
TEXT = '*** Begin Patch\n+ print("hé")\n'


def calling(name: str, *pieces: str, **finish: Any) -> ScriptedEngine:
    call = ToolCall(0, name)
    deltas = make_deltas(pieces, channel="tool_call", tool_call=call, finish=False)
    return ScriptedEngine(lambda _: [*deltas, Delta(finish_reason=finish.get("finish_reason", "tool_calls"))])


def writing(name: str, text: str) -> ScriptedEngine:
    """An engine that calls a custom tool, in pieces of five characters."""
    arguments = arguments_of(text)
    return calling(name, *(arguments[i : i + 5] for i in range(0, len(arguments), 5)))


async def test_every_kind_of_tool_is_a_function_for_the_engine(serve: Serve) -> None:
    engine = saying("a")
    client = await serve(engine)
    request = await asked(client, engine, tools=TOOLS)
    functions = {tool["function"]["name"]: tool["function"] for tool in request.tools}
    assert list(functions) == ["f", "apply_patch", "crm__find", "crm__note", "local_shell"]
    assert functions["crm__find"] == {"name": "crm__find", "description": "Finds."}
    patch = functions["apply_patch"]
    assert patch["description"] == "Changes files."
    assert patch["parameters"]["required"] == ["input"]
    assert '*** Begin Patch"' in patch["parameters"]["properties"]["input"]["description"]
    assert functions["local_shell"]["parameters"]["required"] == ["command"]
    assert request.tool_choice is None


@pytest.mark.parametrize("stream", [False, True])
async def test_tools_that_no_engine_has_are_left_out_and_named(serve: Serve, stream: bool) -> None:
    client = await serve(saying("a"))
    async with client.http.post(client.url + PATH, json={**ASK, "tools": TOOLS, "stream": stream}) as answer:
        assert answer.status == 200
        named = answer.headers["X-Weir-Ignored-Fields"].split(", ")
    assert named[:2] == ["tools.web_search", "tools.from_the_future"]
    _, body, _ = await client.post(PATH, {**ASK, "tools": TOOLS})
    assert [tool["type"] for tool in body["tools"]] == ["function", "custom", "namespace", "local_shell"]
    Response.model_validate(body)


async def test_a_prompt_hook_is_shown_every_tool_that_goes_on(serve: Serve) -> None:  # contract 8.6
    engine = saying("a")
    client = await serve(engine)
    request = await asked(client, engine, tools=TOOLS)
    texts = [text for text in prompt_texts(request) if text.source == "definition"]
    shown = "\n".join(text.text for text in texts)
    for words in ("Changes files.", "*** Begin Patch", "crm__find", "Finds."):
        assert words in shown


async def test_a_call_of_a_namespace_names_it(serve: Serve) -> None:
    client = await serve(calling("crm__find", '{"who": ', '"Ada"}'))
    body = await both(client, {**ASK, "tools": TOOLS})
    (item,) = body["output"]
    assert (item["type"], item["namespace"], item["name"]) == ("function_call", "crm", "find")
    assert item["arguments"] == '{"who": "Ada"}'
    assert (
        "namespace" not in (await both(await serve(calling("f", "{}")), {**ASK, "tools": TOOLS}))["output"][0]
    )


@pytest.mark.parametrize(("name", "namespace"), [("apply_patch", None), ("crm__note", "crm")])
async def test_a_custom_tool_is_called_with_a_text(serve: Serve, name: str, namespace: str | None) -> None:
    client = await serve(writing(name, TEXT))
    body = await both(client, {**ASK, "tools": TOOLS})
    (item,) = body["output"]
    assert (item["type"], item["input"], item["status"]) == ("custom_tool_call", TEXT, "completed")
    assert item["name"] == name.removeprefix("crm__")
    assert item.get("namespace") == namespace
    assert item["id"].startswith("ctc_")
    stream = await client.stream(PATH, {**ASK, "tools": TOOLS})
    kinds = [name for name, _ in stream.events if name and "custom" in name]
    assert kinds == [f"response.custom_tool_call_input.{kind}" for kind in ("delta", "done")]
    read = TypeAdapter[Any](ResponseStreamEvent).validate_python
    for _, data in stream.events[:-1]:
        assert read(data).type == data["type"]


async def test_a_command_is_a_local_shell_call(serve: Serve) -> None:
    arguments = '{"command": ["ls", "-l"], "env": {"A": "b"}, "timeout_ms": 5}'
    client = await serve(calling("local_shell", arguments[:20], arguments[20:]))
    (item,) = (await both(client, {**ASK, "tools": TOOLS}))["output"]
    assert (item["type"], item["status"]) == ("local_shell_call", "completed")
    assert item["action"] == {
        "type": "exec",
        "command": ["ls", "-l"],
        "env": {"A": "b"},
        "timeout_ms": 5,
        "user": None,
        "working_directory": None,
    }


def redacting(chunk: Chunk) -> Verdict:
    if chunk.tool_name == "apply_patch" and chunk.is_final and (at := chunk.pending.find("print")) >= 0:
        return redact([(at, at + 5, "*****")])
    return emit(chunk.pending)


async def test_a_custom_call_is_redacted(serve: Serve) -> None:  # contract 3.5
    def whole(chunk: Chunk) -> Verdict:
        return hold() if not chunk.is_final else redacting(chunk)

    client = await serve(writing("apply_patch", TEXT), Script(whole))
    (item,) = (await both(client, {**ASK, "tools": TOOLS}))["output"]
    assert item["input"] == TEXT.replace("print", "*****")


async def test_a_guard_that_ships_reads_the_text_of_a_custom_call(serve: Serve) -> None:
    key = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
    client = await serve(writing("apply_patch", f'key = "{key}"\n'), Secrets())
    body = await both(client, {**ASK, "tools": TOOLS})
    assert key not in str(body)
    (item,) = body["output"]
    assert item["type"] == "custom_tool_call"
    assert item["input"].startswith('key = "')


@pytest.mark.parametrize(
    ("verdict", "status"), [(suppress(), "completed"), (terminate("no_patches"), "incomplete")]
)
async def test_a_custom_call_that_a_hook_stops_is_no_call(
    serve: Serve, verdict: Verdict, status: str
) -> None:  # contract 3.20
    def stopping(chunk: Chunk) -> Verdict:
        return verdict if chunk.tool_name and "hé" in chunk.text else emit(chunk.pending)

    client = await serve(writing("apply_patch", TEXT), Script(stopping))
    body = await both(client, {**ASK, "tools": TOOLS})
    assert body["status"] == status
    assert "Begin Patch" not in str(body["output"])
    assert "custom_tool_call" not in str(body["output"])
    stream = await client.stream(PATH, {**ASK, "tools": TOOLS})
    assert "Begin Patch" not in str([data for _, data in stream.events if "delta" in str(data)])


async def test_a_hook_that_fails_in_a_custom_call_fails_the_response(serve: Serve) -> None:  # contract 4.1
    def failing(chunk: Chunk) -> Verdict:
        if chunk.tool_name == "apply_patch" and "hé" in chunk.text:
            raise ValueError(chunk.text)
        return emit(chunk.pending)

    client = await serve(writing("apply_patch", TEXT), Script(failing))
    status, body, _ = await client.post(PATH, {**ASK, "tools": TOOLS})
    assert (status, body["error"]["type"]) == (500, "guardrail_error")
    assert "Begin" not in str(body)


async def test_a_custom_call_that_a_limit_cuts_has_its_part_of_the_text(
    serve: Serve,
) -> None:  # contract 3.20
    cut = calling("apply_patch", '{"input": "a\\n', "b\\u00", finish_reason="length")
    client = await serve(cut, tool_calls="stream")
    body = await both(client, {**ASK, "tools": TOOLS})
    assert body["status"] == "incomplete"
    (item,) = body["output"]
    assert (item["input"], item["status"]) == ("a\nb", "incomplete")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"input": "a\\u00e9\\ud83d\\ude00"}', "aé😀"),
        ('{"input": "a\\ud83d', "a�"),
        ('{"input": "a\\', "a"),
        ('{ "input" : "', ""),
        ('"{\\"input\\": \\"a\\"}"', "a"),
        ('{"other": "a"}', '{"other": "a"}'),
        ('{"input": 1}', '{"input": 1}'),
        ("plain", "plain"),
        ("", ""),
    ],
)
def test_the_text_of_a_call_is_read_from_its_arguments(arguments: str, text: str) -> None:
    assert text_of(arguments) == text


def test_arguments_of_another_form_are_a_command_without_words() -> None:
    assert action_of("[]")["command"] == []
    assert action_of('{"command": "ls", "env": [1], "timeout_ms": "2"}') == {
        "type": "exec",
        "command": ["ls"],
        "env": {},
        "timeout_ms": None,
        "user": None,
        "working_directory": None,
    }


def test_a_long_name_is_shortened_to_one_that_upstreams_take() -> None:
    names = {chat_name(f"tool_{i}" + "x" * 60, "mcp__server__") for i in range(9)}
    assert len(names) == 9
    assert {len(name) for name in names} == {64}
    assert chat_name("find", "mcp__crm__") == "mcp__crm__find"


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "custom", "name": "apply_patch"}, "apply_patch"),
        ({"type": "function", "name": "find"}, "crm__find"),
        ({"type": "function", "name": "find", "namespace": "crm"}, "crm__find"),
        ({"type": "local_shell"}, "local_shell"),
    ],
)
async def test_a_choice_names_a_tool_of_its_kind(serve: Serve, choice: Any, expected: str) -> None:
    engine = saying("a")
    client = await serve(engine)
    request = await asked(client, engine, tools=TOOLS, tool_choice=choice)
    assert request.tool_choice == {"type": "function", "function": {"name": expected}}


async def test_only_the_allowed_tools_go_on(serve: Serve) -> None:
    engine = saying("a")
    client = await serve(engine)
    allowed = [{"type": "function", "name": "f"}, {"type": "custom", "name": "note"}, SEARCH]
    choice = {"type": "allowed_tools", "mode": "required", "tools": allowed}
    request = await asked(client, engine, tools=TOOLS, tool_choice=choice)
    assert [tool["function"]["name"] for tool in request.tools] == ["f", "crm__note"]
    assert request.tool_choice == "required"


@pytest.mark.parametrize(
    ("param", "fields", "words"),
    [
        ("tool_choice", {"tool_choice": {"type": "web_search"}}, "web_search, which no engine here has"),
        ("tool_choice", {"tool_choice": {"type": "custom", "name": "f"}}, "a tool that is in tools"),
        ("tool_choice", {"tool_choice": {"type": "function", "name": "find", "namespace": "x"}}, "in tools"),
        ("tool_choice", {"tools": [SEARCH], "tool_choice": "required"}, "needs tools"),
        ("tools", {"tools": [{"type": "function", "name": "crm__find"}, CRM]}, "the name crm__find"),
        ("tools.0.tools", {"tools": [{"type": "namespace", "name": "a"}]}, "required"),
        ("tools.0.tools.0.name", {"tools": [{**CRM, "tools": [{"type": "function"}]}]}, "required"),
        ("tools", {"tools": [{**CRM, "tools": [{"type": "custom", "name": "a"}] * 300}]}, "at most 256"),
        ("input.0.tools", {"input": [{"type": "additional_tools", "tools": [TOOL] * 300}]}, "at most 256"),
        ("tools.0.tools.0", {"tools": [{**CRM, "tools": [{**TOOL, "description": "x" * 140_000}]}]}, "bytes"),
    ],
)
async def test_a_wrong_tool_or_choice_is_a_400(serve: Serve, param: str, fields: Any, words: str) -> None:
    client = await serve(saying("a"))
    status, body, _ = await client.post(PATH, {**ASK, "tools": TOOLS, **fields})
    assert (status, body["error"]["param"]) == (400, param)
    assert words in body["error"]["message"]


CUSTOM_HISTORY = [
    {"role": "user", "content": "Hi"},
    {"type": "function_call", "call_id": "c1", "namespace": "crm", "name": "find", "arguments": "{}"},
    {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": TEXT},
    {"type": "local_shell_call", "id": "lsh_1", "call_id": "c3", "status": "completed",
     "action": {"type": "exec", "command": ["ls"], "env": {}}},
    {"type": "function_call_output", "call_id": "c1", "output": "found"},
    {"type": "custom_tool_call_output", "call_id": "c2", "name": None,
     "output": [{"type": "input_text", "text": "patched"}]},
    {"type": "local_shell_call_output", "id": "lsh_1", "output": "listed"},
]  # fmt: skip


async def test_the_calls_of_a_conversation_have_the_names_that_the_model_used(serve: Serve) -> None:
    engine = saying("a")
    client = await serve(engine)
    request = await asked(client, engine, tools=TOOLS, input=CUSTOM_HISTORY)
    _, assistant, *results = request.messages
    calls = [(call["id"], call["function"]) for call in assistant["tool_calls"]]
    assert calls == [
        ("c1", {"name": "crm__find", "arguments": "{}"}),
        ("c2", {"name": "apply_patch", "arguments": arguments_of(TEXT)}),
        ("c3", {"name": "local_shell", "arguments": '{"command": ["ls"], "env": {}}'}),
    ]
    assert [(one["role"], one["tool_call_id"], one["content"]) for one in results] == [
        ("tool", "c1", "found"),
        ("tool", "c2", "patched"),
        ("tool", "c3", "listed"),
    ]


ELSEWHERE: list[tuple[dict[str, Any], str, str]] = [
    ({"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "weirs"}}, "weirs", ""),
    ({"type": "mcp_call", "id": "mcp_1", "server_label": "crm", "name": "find", "arguments": '{"who": "Ada"}',
      "output": "Ada Lovelace"}, "crm__find", "Ada Lovelace"),
    ({"type": "mcp_list_tools", "id": "l1", "server_label": "crm",
      "tools": [{"name": "find", "description": "Finds all.", "input_schema": {}}]}, "crm", "Finds all."),
    ({"type": "file_search_call", "id": "fs_1", "queries": ["weirs"],
      "results": [{"text": "A weir is a low wall.", "score": 0.5}]}, "weirs", "A weir is a low wall."),
    ({"type": "code_interpreter_call", "id": "ci_1", "code": "1 + 1",
      "outputs": [{"type": "logs", "logs": "two"}]}, "1 + 1", "two"),
    ({"type": "agent_message", "author": "/root", "recipient": "/root/a",
      "content": [{"type": "input_text", "text": "Go on."}]}, "/root/a", "Go on."),
    ({"type": "image_generation_call", "id": "ig_1", "revised_prompt": "A weir", "result": "QUJD"},
     "A weir", ""),
]  # fmt: skip


@pytest.mark.parametrize(("item", "call", "result"), ELSEWHERE)
async def test_an_item_that_was_carried_out_elsewhere_is_a_call_and_its_result(
    serve: Serve, item: dict[str, Any], call: str, result: str
) -> None:  # contract 8.6
    engine = saying("a")
    client = await serve(engine)
    request = await asked(client, engine, input=[{"role": "user", "content": "Hi"}, item])
    _, assistant, answer = request.messages
    assert call in orjson.dumps(assistant["tool_calls"][0]["function"]).decode()
    assert answer["tool_call_id"] == assistant["tool_calls"][0]["id"]
    assert result in orjson.dumps(answer["content"]).decode()
    assert "QUJD" not in str(request.messages)
    sources = {text.source for text in prompt_texts(request) if result and result in text.text}
    assert sources <= {"tool"}


@pytest.mark.parametrize(
    ("call", "output", "text"),
    [
        ({"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
         {"type": "shell_call_output", "call_id": "c",
          "output": [{"stdout": "a b", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]}, "a b"),
        ({"type": "apply_patch_call", "call_id": "c", "operation": {"type": "delete_file", "path": "a"}},
         {"type": "apply_patch_call_output", "call_id": "c", "status": "completed"}, ""),
        ({"type": "tool_search_call", "call_id": "c", "arguments": {"q": "find"}, "execution": "client"},
         {"type": "tool_search_output", "call_id": "c", "status": "completed", "tools": [CRM]}, "Customers."),
        ({"type": "computer_call", "id": "i", "call_id": "c", "action": {"type": "screenshot"}},
         {"type": "computer_call_output", "call_id": "c",
          "output": {"type": "computer_screenshot", "image_url": "data:,"}}, "data:,"),
    ],
)  # fmt: skip
async def test_a_result_of_another_kind_belongs_to_its_call(
    serve: Serve, call: Any, output: Any, text: str
) -> None:
    engine = saying("a")
    client = await serve(engine)
    request = await asked(client, engine, input=[{"role": "user", "content": "Hi"}, call, output])
    _, assistant, result = request.messages
    assert [one["id"] for one in assistant["tool_calls"]] == ["c"] == [result["tool_call_id"]]
    assert text in json.dumps(result["content"])


async def test_tools_that_a_conversation_adds_can_be_called(serve: Serve) -> None:
    engine = calling("crm__find", "{}")
    client = await serve(engine)
    added = {"type": "additional_tools", "role": "developer", "tools": [CRM]}
    hi = {"role": "user", "content": "Hi"}
    _, body, headers = await client.post(PATH, {**ASK, "input": [added, hi]})
    assert (body["output"][0]["namespace"], body["output"][0]["name"]) == ("crm", "find")
    assert headers["X-Weir-Ignored-Fields"] == "tools.web_search"
    assert list(engine.requests[-1].messages) == [hi]
    _, again, _ = await client.post(PATH, {**ASK, "input": "Go on", "previous_response_id": body["id"]})
    assert again["output"][0]["namespace"] == "crm"


async def test_what_nobody_here_can_read_is_left_out_and_named(serve: Serve) -> None:
    engine = saying("a")
    client = await serve(engine)
    items = [{"type": "compaction", "encrypted_content": "QUJD"}, {"role": "user", "content": "Hi"}]
    status, _, headers = await client.post(PATH, {**ASK, "input": items})
    assert (status, headers["X-Weir-Ignored-Fields"]) == (200, "input.compaction")
    assert list(engine.requests[-1].messages) == items[1:]
    status, body, _ = await client.post(PATH, {**ASK, "input": [*items, {"type": "compaction_trigger"}]})
    assert (status, body["error"]["param"]) == (400, "input.2.type")


async def test_custom_calls_can_be_input_again(serve: Serve) -> None:
    engine = writing("apply_patch", TEXT)
    client = await serve(engine)
    _, first, _ = await client.post(PATH, {**ASK, "tools": TOOLS})
    (item,) = first["output"]
    done = {"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "Done"}
    hi = {"role": "user", "content": "Hi"}
    chats = [
        (await asked(client, engine, tools=TOOLS, **fields)).messages
        for fields in (
            {"input": [hi, item, done]},
            {"input": [hi, {"type": "item_reference", "id": item["id"]}, done]},
            {"input": [done], "previous_response_id": first["id"]},
        )
    ]
    assert chats[1:] == chats[:1] * 2
    assert chats[0][1]["tool_calls"][0]["function"]["arguments"] == arguments_of(TEXT)


async def test_an_upstream_of_chats_gets_functions(serve: Serve) -> None:
    engine = writing("apply_patch", TEXT)
    back = await serve(engine)
    front = await serve(OpenAIEngine(back.url), names=[])
    (item,) = (await both(front, {**ASK, "tools": TOOLS, "input": CUSTOM_HISTORY}))["output"]
    assert (item["type"], item["input"]) == ("custom_tool_call", TEXT)
    request: GenerationRequest = engine.requests[-1]
    assert {tool["type"] for tool in request.tools} == {"function"}


async def test_a_client_searches_for_tools_and_the_found_ones_can_be_called(serve: Serve) -> None:
    search = {"type": "tool_search", "execution": "client", "description": "Finds.", "parameters": {}}
    engine = calling("tool_search", '{"query": "crm"}')
    client = await serve(engine)
    body = await both(client, {**ASK, "tools": [search]})
    (item,) = body["output"]
    assert (item["type"], item["execution"]) == ("tool_search_call", "client")
    assert item["arguments"] == {"query": "crm"}
    function = engine.requests[-1].tools[0]["function"]
    assert function == {"name": "tool_search", "description": "Finds.", "parameters": {}}
    found = {"type": "tool_search_output", "call_id": item["call_id"], "status": "completed", "tools": [CRM]}
    request = await asked(client, engine, tools=[search], input=[found], previous_response_id=body["id"])
    assert [tool["function"]["name"] for tool in request.tools] == ["tool_search", "crm__find", "crm__note"]
    _, assistant, result = request.messages
    called = {"name": "tool_search", "arguments": '{"query": "crm"}'}
    assert assistant["tool_calls"][0]["function"] == called
    assert "Customers." in result["content"]
    _, _, headers = await client.post(PATH, {**ASK, "tools": [{"type": "tool_search"}]})
    assert "tools.tool_search" in headers["X-Weir-Ignored-Fields"]
