"""Each kind of block reaches an upstream of the Messages API with all that guards were shown."""

from typing import Any, get_args

import orjson
import pytest
from aiohttp import web

from proxy.wire.messages.blocks_kept import with_changes
from proxy.wire.messages.fields import MessagesRequest
from proxy.wire.messages.turns import Block
from tests.engine.upstream.conftest import FakeUpstream
from tests.engine.upstream.messages.asked import answer, block
from tests.proxy.conftest import Serve
from tests.proxy.wire.messages.conftest import ASK, PATH
from tests.proxy.wire.messages.masks import EPHEMERAL, HOUR, PIXEL, SECRET, Masks, changed, front_of, masked


def _source(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


RESULT_BLOCKS: list[dict[str, Any]] = [
    {"type": "text", "text": "a hunter2"},
    {"type": "image", "source": _source("base64", media_type="image/png", data=PIXEL)},
    {"type": "image", "source": _source("url", url="https://a.b/c.png")},
    {"type": "document", "source": _source("base64", media_type="application/pdf", data="aGk=")},
    {"type": "document", "source": _source("url", url="https://a.b/c.pdf"), "title": "t"},
    {"type": "document", "source": _source("text", media_type="text/plain", data="b"), "title": "t hunter2"},
    {"type": "document", "source": _source("content", content="c hunter2"), "context": "x"},
    {
        "type": "document",
        "source": _source(
            "content",
            content=[
                {"type": "text", "text": "d", "cache_control": HOUR},
                {"type": "text", "text": "e hunter2"},
            ],
        ),
    },
    {
        "type": "search_result",
        "source": "https://a.b/hunter2",
        "title": "t",
        "content": [{"type": "text", "text": "f"}, {"type": "text", "text": "g hunter2"}],
        "cache_control": EPHEMERAL,
    },
]
REFERENCES = [{"type": "tool_reference", "tool_name": name} for name in ("k hunter2", "l")]
OTHER_BLOCKS: dict[str, list[dict[str, Any]]] = {
    "user": [
        {"type": "tool_result", "tool_use_id": "t1"},
        {"type": "tool_result", "tool_use_id": "t1", "content": RESULT_BLOCKS, "is_error": True},
        *({"type": "tool_result", "tool_use_id": "t1", "content": [one]} for one in RESULT_BLOCKS),
        {"type": "tool_result", "tool_use_id": "t1", "content": REFERENCES},
    ],
    "assistant": [
        {"type": "text", "text": "h"},
        {"type": "thinking", "thinking": "i", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "c2ln"},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": "hunter2"}},
    ],
    "system": [{"type": "text", "text": "j hunter2"}],
}
BLOCKS = [("user", one) for one in RESULT_BLOCKS] + [
    (role, one) for role, blocks in OTHER_BLOCKS.items() for one in blocks
]


# contract 8.1, 8.6
@pytest.mark.parametrize(("role", "one"), BLOCKS, ids=[f"{role}-{one['type']}" for role, one in BLOCKS])
@pytest.mark.parametrize("is_alone", [True, False])
def test_every_kind_of_block_goes_on_as_its_caller_wrote_it(
    role: str, one: dict[str, Any], is_alone: bool
) -> None:
    told = [one] if is_alone else [one, {"type": "text", "text": "And?"}]
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": role, "content": told}, *ASK["messages"]]}
    fields = MessagesRequest.model_validate(body)
    asked = fields.to_request("r", "m")
    assert fields.for_engine(asked, asked).caller_body == body
    admitted = masked(asked)
    made = fields.for_engine(asked, admitted).caller_body
    assert made is not None
    assert orjson.dumps(made["messages"]) == orjson.dumps(changed(body["messages"]))
    assert MessagesRequest.model_validate(made).to_request("r", "m").messages == admitted.messages


def test_no_kind_of_block_is_untried() -> None:
    allowed = {
        value for kinds in get_args(Block.model_fields["type"].annotation) for value in get_args(kinds)
    }
    assert {one["type"] for _, one in BLOCKS} | {REFERENCES[0]["type"]} == allowed


def test_an_unknown_kind_of_block_is_never_dropped() -> None:
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "video"}]}]}
    chat = ({"role": "user", "content": "a"},)
    assert with_changes(body, chat, chat) is None


# contract 8.1, 8.6
async def test_a_source_has_no_place_for_words_that_no_guard_is_shown(
    serve: Serve, upstream: FakeUpstream
) -> None:
    client = await front_of(serve, upstream, Masks())
    url = _source("url", url="https://a.b/c.png")
    image = _source("base64", media_type="image/png", data=PIXEL)
    for kept, more in (
        (url, {"data": "It is hunter2.", "media_type": "hunter2"}),
        (image, {"url": "https://a.b/hunter2", "hunter2": "x", "content": "hunter2"}),
    ):
        content = [{"type": "image", "source": {**kept, **more}}, {"type": "text", "text": "Look."}]
        status, _, _ = await client.post(PATH, {**ASK, "messages": [{"role": "user", "content": content}]})
        assert status == 200
        assert upstream.bodies[-1]["messages"][0]["content"] == [
            {"type": "image", "source": kept},
            content[1],
        ]
    num_sent = len(upstream.bodies)
    for source in (
        _source("base64", media_type="image/png", data="It is hunter2."),
        _source("base64", media_type="It is hunter2.", data=PIXEL),
        _source("base64", media_type="image/" + "x" * 95, data=PIXEL),
        _source("text", media_type="It is hunter2.", data="a"),
    ):
        content = [{"type": "document", "source": source}]
        status, error, _ = await client.post(
            PATH, {**ASK, "messages": [{"role": "user", "content": content}]}
        )
        assert (status, SECRET in str(error)) == (400, False)
    assert len(upstream.bodies) == num_sent


# contract 8.6
@pytest.mark.parametrize("guards", [(), (Masks(),)])
async def test_a_document_with_a_text_goes_on_as_it_is_but_for_a_guards_change(
    serve: Serve, upstream: FakeUpstream, guards: Any
) -> None:
    client = await front_of(serve, upstream, *guards)
    source = {"type": "text", "media_type": "text/plain", "data": "The key is hunter2."}
    document = {"type": "document", "source": source}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [document]}
    for content in ([document], [document, {"type": "text", "text": "Sum it up."}], [result]):
        fields = {"model": "m", "messages": [{"role": "user", "content": content}]}
        expected = changed(fields["messages"]) if guards else fields["messages"]
        upstream.script = lambda body: answer(block(0, "text", "ok"))
        await client.post(PATH, {**fields, "max_tokens": 9})
        assert upstream.bodies[-1]["messages"] == expected
        upstream.script = lambda body: web.json_response({"input_tokens": 9})
        await client.post(f"{PATH}/count_tokens", fields)
        assert upstream.bodies[-1]["messages"] == expected
