"""The turns of a conversation as a chat."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from proxy.wire.messages.turns import Turn, to_messages

TURNS: TypeAdapter[list[Turn]] = TypeAdapter(list[Turn])
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}


def chat(*turns: Any) -> list[dict[str, Any]]:
    return to_messages(TURNS.validate_python(list(turns)))


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value, "cache_control": {"type": "ephemeral"}, "citations": None}


def test_a_text_and_one_text_block_are_the_same() -> None:
    assert chat({"role": "user", "content": "Hi"}) == chat(user(text("Hi")))
    assert chat(user(text("Hi"))) == [{"role": "user", "content": "Hi"}]


def test_images_and_documents_are_parts() -> None:
    (message,) = chat(
        user(
            text("See"),
            PNG,
            {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Once"}},
            {
                "type": "document",
                "title": "a.pdf",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="},
            },
        )
    )
    assert message["content"] == [
        {"type": "text", "text": "See"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}},
        {"type": "document", "text": "Once"},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,aGk=", "filename": "a.pdf"}},
    ]


def test_results_of_tools_come_before_the_turns_text() -> None:
    calls = {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "of another server"},
            {"type": "redacted_thinking", "data": "x"},
            text("I look."),
            {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}, "caller": None},
            {"type": "tool_use", "id": "t2", "name": "g", "input": {}},
        ],
    }
    results = user(
        text("And then?"),
        {"type": "tool_result", "tool_use_id": "t1", "content": "sunny"},
        {"type": "tool_result", "tool_use_id": "t2", "content": [text("no"), PNG], "is_error": True},
        {"type": "tool_result", "tool_use_id": "t3"},
    )
    assert chat({"role": "user", "content": "Weather?"}, calls, results) == [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "Hm.",
            "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
                {"id": "t2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "sunny"},
        {
            "role": "tool",
            "tool_call_id": "t2",
            "content": [
                {"type": "text", "text": "Error:"},
                {"type": "text", "text": "no"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
            ],
        },
        {"role": "tool", "tool_call_id": "t3", "content": ""},
        {"role": "user", "content": "And then?"},
    ]


@pytest.mark.parametrize("given", [{}, {"input": None}], ids=["missing", "null"])
def test_a_call_without_an_input_has_no_arguments(given: dict[str, Any]) -> None:
    turn = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", **given}]}
    assert chat(turn)[0]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}


def test_turns_of_one_role_in_a_row_are_one() -> None:
    assert chat(user(text("a")), user(text("b")), {"role": "system", "content": "Be brief."}) == [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "system", "content": "Be brief."},
    ]


def test_the_result_of_a_tool_that_failed_says_so() -> None:
    failed = {"type": "tool_result", "tool_use_id": "t", "is_error": True}
    assert chat(user(failed))[0]["content"] == "Error"
    assert chat(user({**failed, "content": "no"}))[0]["content"] == "Error: no"


def test_a_text_document_has_its_title_and_its_context() -> None:
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Rain."}}
    assert chat(user({**document, "title": "Weather", "context": "Of today"}))[0]["content"] == [
        {"type": "document", "text": "Weather\n\nOf today\n\nRain."}
    ]
    blocks = {"type": "content", "content": [text("Rain."), text("Wind.")]}
    assert chat(user({"type": "document", "source": blocks}))[0]["content"] == [
        {"type": "document", "text": "Rain.\n\nWind."}
    ]


def test_a_search_result_is_a_document_of_the_user_or_of_a_tool() -> None:
    found = {"type": "search_result", "source": "https://a.example", "title": "Weather", "citations": {}}
    found["content"] = [text("Rain.")]
    document = {"type": "document", "text": "Weather\n\nhttps://a.example\n\nRain."}
    assert chat(user(found))[0]["content"] == [document]
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [found]}
    assert chat(user(result)) == [{"role": "tool", "tool_call_id": "t1", "content": [document]}]


@pytest.mark.parametrize(
    "turn",
    [
        {"role": "developer", "content": "x"},
        user({"type": "search_result", "title": "x"}),
        user({"type": "search_result", "title": "x", "source": "x", "content": [PNG]}),
        user({"type": "document", "source": "x"}),
        user({"type": "document", "source": {"type": "content", "content": [PNG]}}),
        user({"type": "server_tool_use", "id": "x", "name": "web_search", "input": {}}),
        user({"type": "text"}),
        user({"type": "tool_use", "id": "x", "name": "f", "input": {}}),
        user({"type": "image", "source": {"type": "file", "file_id": "x"}}),
        user({"type": "image", "source": {"type": "base64", "data": "x"}}),
        user({"type": "image", "source": {"type": "text", "data": "x"}}),
        user({"type": "tool_result", "tool_use_id": "t", "content": [{"type": "thinking", "thinking": "x"}]}),
        {"role": "assistant", "content": [PNG]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "f", "input": "{}"}]},
        {"role": "system", "content": [PNG]},
    ],
)
def test_a_block_that_a_chat_cannot_hold_is_refused(turn: Any) -> None:
    with pytest.raises(ValidationError):
        chat(turn)
