"""The guard for JSON under a schema: what a client gets is a valid document, or the beginning of one."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Delta, ToolCall
from hooks import Chunk, Verdict, terminate
from hooks.builtin.json_schema import JsonSchema
from hooks.json.document import Document
from hooks.json.schema_compiler import compile_schema
from hooks.testing import assert_chunk_invariant, play, stream_of
from tests.helpers import (
    ScriptedEngine,
    examples,
    finish_of,
    guard_all,
    make_deltas,
    make_request,
    pipeline_of,
    text_of,
)
from tests.hooks.builtin.streams import PLACES, cut
from tests.proxy.conftest import CHAT, Serve
from tests.proxy.conftest import serve as _serve

serve = _serve


@pytest.fixture(autouse=True)
def mode() -> str:
    return "in-process"


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[A-Z]"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}
SEND = {"type": "function", "function": {"name": "send", "parameters": PERSON}}
STOP = {"type": "function", "function": {"name": "stop"}}


async def answered(guard: Any, text: str, channel: Any = "content", **fields: Any) -> tuple[str, Any]:
    """The text that a client gets, a character a token, and the finish reason."""
    call = ToolCall(0, fields.pop("name", "send")) if channel == "tool_call" else None
    deltas = make_deltas(text, finish=False, channel=channel, tool_call=call)
    end = [Delta(channel=channel, tool_call=call), Delta(finish_reason="stop")]
    released = await guard_all(
        pipeline_of(guard, tool_calls="stream"), [*deltas, *end], make_request(**fields)
    )
    return text_of(released, channel), finish_of(released)[1]


async def test_an_answer_ends_before_what_the_schema_has_not() -> None:
    guard = JsonSchema(schema=PERSON)
    assert await answered(guard, '{"age": 7, "name": "Ann"}\n') == ('{"age": 7, "name": "Ann"}\n', None)
    assert await answered(guard, '{"name": "ann"}') == ('{"name": "', "json_schema")
    assert await answered(guard, '{"name": "Ann", "email": 1}') == ('{"name": "Ann", "', "json_schema")
    assert await answered(guard, 'Sure! {"name": "Ann"}') == ("", "json_schema")
    assert await answered(guard, '{"name": "Ann"} Done.') == ('{"name": "Ann"} ', "json_schema")


async def test_what_ends_too_soon_is_ended_unless_allowed() -> None:
    for text in ('{"name": "An', "", " \n"):
        assert await answered(JsonSchema(schema=PERSON), text) == (text, "json_incomplete")
        assert await answered(JsonSchema(schema=PERSON, incomplete="allow"), text) == (text, None)
    guard = JsonSchema(schema={"type": "integer"}, incomplete="allow")
    assert await answered(guard, "1.5") == ("1.5", "json_schema")


async def test_closing_words_are_of_answers_alone() -> None:
    guard = JsonSchema(schema=PERSON, tools={"send": PERSON}, text=" (cut)")
    assert await answered(guard, "[]") == (" (cut)", "json_schema")
    assert await answered(guard, "[]", "tool_call") == ("", "json_schema")


async def test_a_call_is_held_to_the_requests_own_tools() -> None:
    guard = JsonSchema(tools=True)
    tools = (STOP, SEND)
    for arguments, got in [
        ('{"name": "Ann"}', ('{"name": "Ann"}', None)),
        ('{"name": 5}', ('{"name": ', "json_schema")),
        ('{"age": 5}', ('{"age": 5', "json_schema")),
        ("", ("", "json_incomplete")),
    ]:
        assert await answered(guard, arguments, "tool_call", tools=tools) == got
    assert await answered(guard, "", "tool_call", tools=tools, name="stop") == ("", None)
    assert await answered(guard, '{"a": 1}', "tool_call", tools=tools, name="stop") == ('{"a": 1}', None)
    assert await answered(guard, "no JSON at all", "content", tools=tools) == ("no JSON at all", None)


async def test_a_call_of_a_tool_that_the_request_has_not_is_not_even_named() -> None:
    deltas = [
        *make_deltas(
            ["{", "}"], finish=False, channel="tool_call", tool_call=ToolCall(0, "delete_everything")
        ),
        Delta(finish_reason="tool_calls"),
    ]
    released = await guard_all(pipeline_of(JsonSchema(tools=True)), deltas, make_request(tools=(SEND,)))
    assert finish_of(released) == ("content_filter", "unknown_tool")
    assert not any(delta.tool_call for delta in released)


async def test_calls_are_held_to_given_schemas_by_name() -> None:
    guard = JsonSchema(tools={"send": PERSON})
    assert await answered(guard, '{"x', "tool_call") == ('{"', "json_schema")
    assert await answered(guard, "what it likes", "tool_call", name="other") == ("what it likes", None)


async def test_an_answer_is_held_to_the_requests_own_schema() -> None:
    guard = JsonSchema(schema="request")
    asked: dict[str, Any] = {
        "response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": PERSON}}
    }
    assert await answered(guard, '{"x', extra=asked) == ('{"', "json_schema")
    asked = {"response_format": {"type": "json_object"}}
    assert await answered(guard, "[", extra=asked) == ("", "json_schema")
    for asked in ({"response_format": {"type": "text"}}, {}):
        assert await answered(guard, "what it likes", extra=asked) == ("what it likes", None)


async def test_an_answer_with_tool_calls_may_be_empty() -> None:
    guard = JsonSchema(schema=PERSON)
    assert await answered(guard, "\n", tools=(SEND,)) == ("\n", None)
    assert await answered(guard, "", tools=(SEND,), tool_choice="none") == ("", "json_incomplete")


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "all"},
        5,
        {"properties": {str(i): {} for i in range(5000)}},
        {"pattern": "(" * 900},
        {"description": "x" * 300_000},
        {"$ref": "https://example.org"},
        {"unevaluatedItems": False},
    ],
)
async def test_a_request_whose_schema_cannot_be_used_is_ended(parameters: Any) -> None:
    tool = {"type": "function", "function": {"name": "send", "parameters": parameters}}
    for _ in range(2):  # also when it is remembered
        got = await answered(JsonSchema(tools=True), '{"name": 5}', "tool_call", tools=(tool,))
        assert got == ("", "unusable_schema")


async def test_a_schema_with_too_much_to_follow_ends_the_request_at_the_same_place() -> None:
    tree = {"anyOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}, "minItems": 0}]}
    guard = JsonSchema(schema=tree)
    text, reason = await answered(guard, "[" * 50)
    assert (0 < len(text) < 20, reason) == (True, "unusable_schema")
    assert_chunk_invariant(guard, "[" * (len(text) + 1), num_random=5)


async def test_a_requests_schema_has_fewer_schemas_for_one_value() -> None:
    """The deployment's own may have more: its author knows what the checks cost."""
    branch = {"contains": {"type": "integer"}}
    wide = {"$defs": {"a": {"anyOf": [branch] * 12}}, "anyOf": [{"$ref": "#/$defs/a"}] * 12}
    parts = {"type": "json_schema", "json_schema": {"name": "f", "schema": wide}}
    asked = await answered(JsonSchema(schema="request"), "[1]", extra={"response_format": parts})
    assert asked == ("", "unusable_schema")
    assert await answered(JsonSchema(schema=wide), "[1]") == ("[1]", None)


def test_a_schema_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "person.json").write_text(json.dumps(PERSON))
    for guard in (
        JsonSchema(schema=str(tmp_path / "person.json")),
        JsonSchema(tools={"send": tmp_path / "person.json"}),
    ):
        released = play(guard, stream_of('{"x": 1}', channel="tool_call", tool_name="send"))
        assert released.tool_calls == ([("send", '{"x": 1}')] if guard._schema else [])


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"tools": False},
        {"schema": {"type": "all"}},
        {"tools": {"a": 5}},
        {"tools": True, "incomplete": "no"},
    ],
)
def test_arguments_that_make_no_sense_are_refused(args: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each has a message of its own
        JsonSchema(**args)


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Ann", "age": 70}',
        '{"name": "A\\u00e9\\ud83d\\ude00", "age": -1}',
        '{"name": "Ann", "x',
        '{"age": 7.5}',
        'Hello {"name"}',
    ],
)
def test_it_does_not_matter_where_the_stream_is_cut(text: str) -> None:
    assert_chunk_invariant(JsonSchema(schema=PERSON), text)


@examples(300)
@given(
    st.sampled_from(['{"name": "Ann", "age": 7}', '{"age":0,"name":"B\\n\\u00e9"}']),
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from('{}[]",:\\ nt1-.eAa\n')), max_size=4),
    PLACES,
)
def test_whatever_is_said_what_is_released_may_become_valid(
    text: str, changes: list[tuple[int, str]], places: list[int]
) -> None:
    for place, char in changes:
        text = text[:place] + char + text[place + 1 :]
    released = play(JsonSchema(schema=PERSON), cut(text, places) or [""])
    document = Document(compile_schema(PERSON))
    assert document.feed(released.content) == len(released.content)
    assert text.startswith(released.content)
    assert (released.stop_reason is None) == (released.content == text and document.finish())


ANN = '{"name": "Ann"}'


@pytest.mark.parametrize(
    ("text", "expected", "reason"),
    [
        (f"```json\n{ANN}\n```", f"{ANN}\n", None),
        (f"```\n{ANN}```\n", ANN, None),
        (f"\n ``` JSON \r\n{ANN}\n```\n\n", f"\n {ANN}\n", None),
        (f"```json\n{ANN}", ANN, None),
        ('```json\n{"name": "A```"}\n```', '{"name": "A```"}\n', None),
        ('```json\n{"name": "ann"}\n```', '{"name": "', "json_schema"),
        (f"```json\n{ANN}\n``` Done.", f"{ANN}\n", "json_schema"),
        (f"```json\n{ANN}\n`x", f"{ANN}\n", "json_schema"),
        ('```json\n{"name": "Ann"\n```', '{"name": "Ann"\n', "json_schema"),
        ('```json\n{"name": "Ann', '{"name": "Ann', "json_incomplete"),
        (f"```yaml\n{ANN}\n```", "", "json_schema"),
        ("```json", "", "json_schema"),
        (f"Sure!\n```json\n{ANN}\n```", "", "json_schema"),
    ],
)
async def test_a_fence_around_an_answer_is_withheld(text: str, expected: str, reason: str | None) -> None:
    assert await answered(JsonSchema(schema=PERSON), text) == (expected, reason)
    assert_chunk_invariant(JsonSchema(schema=PERSON), text)


def test_a_fenced_answer_with_backticks_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    num_read, feed = 0, Document.feed

    def counting(self: Document, text: str) -> int:
        nonlocal num_read
        num_read += len(text)
        return feed(self, text)

    monkeypatch.setattr(Document, "feed", counting)
    pieces = ['```json\n{"name": "A', *["x`y"] * 200, '"}', "\n```"]
    document = "".join(pieces).removeprefix("```json\n").removesuffix("```")
    assert play(JsonSchema(schema=PERSON), pieces).content == document
    assert num_read == len(document)


@pytest.mark.parametrize("number", ["12", "12 "])
@pytest.mark.parametrize(("multiple", "reason"), [(3, None), (5, "json_schema")])
def test_a_fenced_number_ends_at_the_fence(number: str, multiple: int, reason: str | None) -> None:
    guard = JsonSchema(schema={"multipleOf": multiple})
    assert play(guard, [f"```\n{number}```"]).stop_reason == reason
    assert_chunk_invariant(guard, f"```\n{number}```")


def test_a_fenced_answer_that_is_ended_keeps_its_text_as_the_model_wrote_it() -> None:  # contract 3.3
    verdicts: list[Verdict] = []

    def watch(chunk: Chunk) -> Verdict:
        verdicts.append(guard(chunk))
        return verdicts[-1]

    guard = JsonSchema(schema=PERSON, text=" (cut)")
    assert play(watch, ['```json\n{"name": "ann"}']).content == '{"name": " (cut)'
    assert verdicts == [terminate("json_schema", after=18, text=" (cut)", spans=[(0, 8, "")])]


async def test_a_fence_in_a_call_is_no_json() -> None:
    guard = JsonSchema(tools={"send": PERSON})
    assert await answered(guard, f"```json\n{ANN}\n```", "tool_call") == ("", "json_schema")


async def test_nothing_is_held() -> None:
    def watch(chunk: Chunk) -> Verdict:
        assert chunk.pending == chunk.text_diff
        return guard(chunk)

    guard = JsonSchema(schema=PERSON)
    pieces = cut('{"name": "Ann \\ud83d\\ude00", "age": 7}', sorted(random.Random(1).sample(range(35), 12)))
    assert play(watch, pieces).stop_reason is None


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_of_the_service_gets_a_call_that_keeps_to_its_tool(serve: Serve, stream: bool) -> None:
    said = ['<tool_call>\n{"name": "send", "arguments": {"name": "Ann", "', "age", '": "old"}}\n</tool_call>']

    class Model(ScriptedEngine):
        info = ScriptedEngine.info.__class__(max_model_len=1024, parses_tool_calls=False)

    client = await serve(
        Model(lambda request: make_deltas(said)),
        pipeline=pipeline_of(JsonSchema(tools=True), tool_calls="stream"),
        tool_call_parser="hermes",
    )
    body = {**CHAT, "tools": [SEND], "stream": stream}
    if stream:
        events = await client.stream("/v1/chat/completions", body)
        calls = [c for chunk in events.chunks for c in chunk["choices"][0]["delta"].get("tool_calls") or []]
        arguments = "".join(call["function"].get("arguments") or "" for call in calls)
        last = events.chunks[-1]["choices"][0]
    else:
        _, answer, _ = await client.post("/v1/chat/completions", body)
        last = answer["choices"][0]
        arguments = last["message"]["tool_calls"][0]["function"]["arguments"]
    assert arguments == '{"name": "Ann", "age": '
    assert (last["finish_reason"], last["stop_reason"]) == ("content_filter", "json_schema")
