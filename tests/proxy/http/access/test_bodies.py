"""A body has bounds. Each of the large bodies once kept the whole service busy for seconds."""

import contextlib
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import RequestError
from proxy.http.access import bodies
from proxy.http.access.bodies import check_counts, is_deeper, max_body_size
from proxy.settings.requests import BodyOptions
from proxy.wire.errors import APIError
from proxy.wire.openai.chat import ChatRequest
from proxy.wire.openai.completions import CompletionRequest
from proxy.wire.openai.responses import ResponsesRequest
from tests.helpers import ScriptedEngine, examples, options_with
from tests.proxy.conftest import CHAT, COMPLETION, Serve, hello, send

CHATS, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
USER = {"role": "user", "content": "a"}
TOOL = {"type": "function", "function": {"name": "f"}}
PART = {"type": "text", "text": "a"}
FORMAT = {"type": "json_schema", "json_schema": {"name": "f", "schema": {"enum": ["a" * 10] * 20_000}}}

WIDE = {"anyOf": [{"contains": {"const": i}} for i in range(240)]}
"""Each item of an array is checked by 240 schemas."""
DEEP = {"properties": {"a": {"oneOf": [{"allOf": [{"anyOf": [{}, True]}] * 5}] * 7}}}
"""There are 1 + 7 * (1 + 5 * (1 + 2)) schemas for one value."""


def format_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "f", "schema": schema}}


TOO_MANY: list[tuple[str, dict[str, Any], str, str]] = [
    (CHATS, {"messages": [USER] * 3000}, "messages", "max_messages"),
    (CHATS, {**CHAT, "messages": [{**USER, "content": [PART] * 3000}]}, "messages", "max_content_parts"),
    (CHATS, {**CHAT, "messages": [{**USER, **{str(i): i for i in range(300)}}]}, "messages.0", "max_fields"),
    (CHATS, {**CHAT, "tools": [TOOL] * 3000}, "tools", "max_tools"),
    (CHATS, {**CHAT, "functions": [TOOL] * 3000}, "functions", "max_tools"),
    (CHATS, {**CHAT, "tools": [{**TOOL, "more": "x" * 200_000}]}, "tools.0", "max_schema_size"),
    (CHATS, {**CHAT, "response_format": FORMAT}, "response_format", "max_schema_size"),
    *(
        (CHATS, {**CHAT, name: "x" * 200_000}, name, "max_schema_size")
        for name in ("guided_whitespace_pattern", "stop_regex")
    ),
    (CHATS, {**CHAT, "response_format": format_of(WIDE)}, "response_format", "max_schema_branches"),
    (CHATS, {**CHAT, "response_format": format_of(DEEP)}, "response_format", "max_schema_branches"),
    (CHATS, {**CHAT, "tools": [TOOL, {**TOOL, "parameters": WIDE}]}, "tools.1", "max_schema_branches"),
    (CHATS, {**CHAT, "guided_json": WIDE}, "guided_json", "max_schema_branches"),
    (RESPONSES, {"input": "a", "text": {"format": {"schema": WIDE}}}, "text", "max_schema_branches"),
    (CHATS, {**CHAT, "guided_choice": ["word"] * 30_000}, "guided_choice", "max_schema_size"),
    (CHATS, {**CHAT, "metadata": {str(i): "" for i in range(17)}}, "metadata", "max_metadata"),
    (CHATS, {**CHAT, "metadata": {"k" * 65: "v"}}, "metadata", "max_metadata_key"),
    (CHATS, {**CHAT, "metadata": {"k": "v" * 513}}, "metadata", "max_metadata_value"),
    (CHATS, {**CHAT, "metadata": {"k": [[]] * 5000}}, "metadata", "max_metadata_value"),
    (CHATS, {**CHAT, "logit_bias": {str(i): 1 for i in range(100_000)}}, "logit_bias", "max_logit_bias"),
    (CHATS, {**CHAT, "stop": ["a"] * 33}, "stop", "max_stop_strings"),
    (CHATS, {**CHAT, **{f"x{i}": 1 for i in range(300)}}, None, "max_fields"),
    (COMPLETIONS, {"prompt": ["a"] * 2000}, "prompt", "max_prompts"),
    (COMPLETIONS, {"prompt": [[1]] * 2000}, "prompt", "max_prompts"),
    (COMPLETIONS, {"prompt": ["a"] * 100, "n": 100}, "prompt", "max_outputs"),
    (COMPLETIONS, {"prompt": ["a"] * 100, "best_of": 100}, "prompt", "max_outputs"),
    (COMPLETIONS, {"prompt": "a", "n": 2, "best_of": 5000}, "best_of", "max_outputs"),
    (CHATS, {**CHAT, "n": 5000}, "n", "max_outputs"),
    (RESPONSES, {"input": [USER] * 3000}, "input", "max_messages"),
    (RESPONSES, {"input": [{**USER, "content": [PART] * 3000}]}, "input", "max_content_parts"),
    (
        RESPONSES,
        {"input": [{"type": "additional_tools", "tools": [TOOL] * 100}] * 3},
        "input.2.tools",
        "max_tools",
    ),
    (
        RESPONSES,
        {"input": [{"type": "tool_search_output", "tools": [TOOL] * 200}], "tools": [TOOL] * 100},
        "tools",
        "max_tools",
    ),
    (RESPONSES, {"input": "a", "text": {"format": FORMAT}}, "text", "max_schema_size"),
    ("/tokenize", {"messages": [USER] * 3000}, "messages", "max_messages"),
]


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests that pydantic is asked to build."""
    built: list[Any] = []
    for cls in (ChatRequest, CompletionRequest, ResponsesRequest):
        monkeypatch.setattr(cls, "model_validate", lambda value: built.append(value))
    return built


@pytest.mark.parametrize(
    ("path", "body", "param", "option"), TOO_MANY, ids=[f"{t[0]} {t[3]}" for t in TOO_MANY]
)
async def test_too_many_are_counted_before_anything_is_built(
    serve: Serve, built: list[Any], path: str, body: dict[str, Any], param: str | None, option: str
) -> None:
    client = await serve(ScriptedEngine(hello))
    status, error = await send(client, path, orjson.dumps(body))
    assert (status, error["param"], error["code"]) == (400, param, "too_long")
    assert error["message"].endswith(f"at most {getattr(BodyOptions, option)} are taken.")
    assert not built


async def test_the_bounds_are_constants_of_their_class(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), max_messages=1, max_json_values=100_000)
    status, error = await send(client, CHATS, orjson.dumps({"messages": [USER] * 2}))
    assert (status, error["message"]) == (400, "messages: there are 2 messages, and at most 1 are taken.")
    assert (await client.post(CHATS, CHAT))[0] == 200


@pytest.mark.parametrize(
    ("inner", "things"),
    [
        (b"[]," * 300_000, "objects and lists"),
        (b"{}," * 20_000, "objects and lists"),
        (b"1," * 300_000, "values"),
    ],
    ids=["lists", "objects", "numbers"],
)
async def test_a_body_of_many_values_is_not_even_parsed(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, inner: bytes, things: str
) -> None:
    client = await serve(ScriptedEngine(hello))
    monkeypatch.setattr(bodies, "orjson", None)  # nothing can parse
    body = orjson.dumps(CHAT)[:-1] + b',"x":[' + inner + b"0]}"
    status, error = await send(client, CHATS, body)
    assert (status, error["code"]) == (400, "too_long")
    assert f"too many {things}" in error["message"]


async def test_a_long_text_with_marks_of_json_is_read(serve: Serve) -> None:
    engine = ScriptedEngine(hello)
    client = await serve(engine)
    text = 'a, [b] {"c": 1}\\"' * 40_000
    assert (await client.post(COMPLETIONS, {**COMPLETION, "prompt": text}))[0] == 200
    assert engine.requests[-1].prompts == (text,)


@pytest.mark.parametrize("num_sent", [3000, 1], ids=["told its length", "in pieces"])
async def test_a_body_over_the_limit_is_refused_by_its_length(serve: Serve, num_sent: int) -> None:
    client = await serve(ScriptedEngine(hello), max_body_size=1000)

    async def pieces() -> Any:
        for _ in range(3000):
            yield b" "

    data = b" " * 3000 if num_sent > 1 else pieces()
    headers = {"Content-Type": "application/json"}
    async with client.http.post(client.url + CHATS, data=data, headers=headers) as response:
        error = orjson.loads(await response.read())["error"]
    assert (response.status, error["message"]) == (
        413,
        "The request body is too large: at most 1000 bytes are read.",
    )


@pytest.mark.parametrize(
    ("own", "max_model_len", "size"),
    [
        (None, None, 16 * 1024**2),
        (None, 1024, 2 * 1024**2),
        (None, 262_144, 4 * 1024**2),
        (1000, 262_144, 1000),
        (1000, None, 1000),
    ],
)
def test_the_limit_of_a_body_fits_the_model(own: int | None, max_model_len: int | None, size: int) -> None:
    assert max_body_size(BodyOptions(max_body_size=own), max_model_len) == size


JSON = st.recursive(
    st.integers(0, 9) | st.booleans() | st.none() | st.text('a",[]{}\\\né😀', max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text('a",[{\\', max_size=3), inner, max_size=4)
    ),
    max_leaves=30,
)


def commas_and_openings(value: Any) -> tuple[int, int]:
    if not isinstance(value, dict | list):
        return 0, 0
    inner = [commas_and_openings(one) for one in (value.values() if isinstance(value, dict) else value)]
    return sum(c for c, _ in inner) + max(len(value) - 1, 0), sum(o for _, o in inner) + 1


@given(value=JSON, size=st.integers(1, 9), is_escaped=st.booleans())
def test_what_is_counted_in_the_bytes_is_what_is_there(value: Any, size: int, is_escaped: bool) -> None:
    import json

    body = json.dumps(value).encode() if is_escaped else orjson.dumps(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bodies, "SLICE", size)
        counted = list(bodies._structure(body))
    assert (sum(c for c, _ in counted), sum(o for _, o in counted)) == commas_and_openings(value)


@given(
    value=JSON,
    size=st.integers(1, 9),
    max_values=st.integers(1, 20),
    max_objects=st.integers(1, 8),
    max_depth=st.integers(0, 8),
)
async def test_marks_in_strings_refuse_no_body(
    value: Any, size: int, max_values: int, max_objects: int, max_depth: int
) -> None:
    body = orjson.dumps(value)
    commas, opened = commas_and_openings(value)
    options = options_with(BodyOptions, max_json_values=max_values, max_json_objects=max_objects)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bodies, "SLICE", size)
        patch.setattr(bodies, "MAX_DEPTH", max_depth)
        has_many = body.count(b"[") + body.count(b"{") > max_depth
        check = bodies._check_values(body, options, 0, has_many=has_many)
        if 1 + commas <= max_values and 1 + opened <= max_objects:
            await check
        else:
            with pytest.raises(APIError, match="The body has too many"):
                await check


async def test_the_strings_of_a_long_chat_are_not_looked_at_one_by_one(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "_structure", None)
    engine = ScriptedEngine(hello)
    client = await serve(engine)
    messages = [{**USER, "content": f'{i}, "[a]"\n' * 200} for i in range(50)]
    assert (await client.post(CHATS, {**CHAT, "messages": messages}))[0] == 200
    assert engine.requests[-1].messages == tuple(messages)


FIELDS = st.sampled_from(
    [
        "messages",
        "input",
        "prompt",
        "n",
        "best_of",
        "stop",
        "tools",
        "functions",
        "metadata",
        "logit_bias",
        "response_format",
        "text",
        "guided_json",
        "content",
        "output",
        "summary",
        "tool_calls",
    ]
)
BODIES = st.recursive(
    JSON,
    lambda inner: st.dictionaries(FIELDS, inner, max_size=5) | st.lists(inner, max_size=3),
    max_leaves=20,
)


@given(body=BODIES)
@examples(200)
def test_whatever_is_counted_is_refused_or_left_to_the_reader(body: Any) -> None:
    with contextlib.suppress(RequestError):
        check_counts(
            body,
            options_with(BodyOptions, max_messages=2, max_content_parts=3, max_outputs=4, max_schema_size=50),
        )


def depth_of(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(
        (depth_of(one) for one in (value.values() if isinstance(value, dict) else value)), default=0
    )


@given(value=JSON, depth=st.integers(0, 5))
def test_depth_is_the_number_of_levels(value: Any, depth: int) -> None:
    assert is_deeper(value, depth) is (depth_of(value) > depth)


def test_schemas_for_one_value_are_counted_and_no_others() -> None:
    asked = {"response_format": format_of(DEEP)}
    check_counts(asked, options_with(BodyOptions, max_schema_branches=1 + 7 * 16))
    with pytest.raises(RequestError, match="there are 113 schemas for one value"):
        check_counts(asked, options_with(BodyOptions, max_schema_branches=7 * 16))
    many = {"properties": {f"p{i}": {"anyOf": [{}, {"enum": [1, 2]}]} for i in range(500)}}
    check_counts({"response_format": format_of(many)}, BodyOptions())


@pytest.mark.parametrize("text", ["a", "[{" * 20_000], ids=["short", "long"])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
async def test_a_body_may_have_a_hundred_levels(serve: Serve, text: str, opening: str, closing: str) -> None:
    client = await serve(ScriptedEngine(hello))
    step = opening.count("[") + opening.count("{")

    def body(levels: int) -> Any:
        times = (levels - 1) // step
        return {**COMPLETION, "prompt": text, "x": orjson.loads(opening * times + "1" + closing * times)}

    assert (await client.post(COMPLETIONS, body(bodies.MAX_DEPTH)))[0] == 200
    status, error = await send(client, COMPLETIONS, orjson.dumps(body(bodies.MAX_DEPTH + step)))
    assert (status, error["message"]) == (400, "The body is nested too deeply: 100 levels are read.")
