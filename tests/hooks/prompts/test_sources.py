"""Every text of a prompt has its source, whatever API it came by (a longer run: `make bench NAME=leaks`)."""

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.leaks_sources import run
from engine.protocol.documents import with_documents_as_text
from hooks import GenerationRequest, PromptText, prompt_texts, with_prompt_texts
from hooks.builtin.wrap import Wrap
from hooks.prompts.texts import only_from
from tests.helpers import make_request


@pytest.fixture(autouse=True)
def mode() -> str:
    """Nothing runs here."""
    return "none"


def user(*parts: Any) -> GenerationRequest:
    return make_request(messages=({"role": "user", "content": list(parts)},))


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def document(words: str) -> dict[str, Any]:
    return {"type": "document", "text": words}


def test_each_text_of_a_drawn_prompt_has_its_source() -> None:  # contract 8.6, 8.15
    counts = run(400, seed=3)
    assert min(counts[source] for source in ("user", "tool", "document", "system", "definition")) > 20


def test_parts_of_several_sources_are_read_joined_as_a_strangers() -> None:
    request = user(text("a"), document("b"), text("c"))
    joined = [one for one in prompt_texts(request) if len(one.text) > 1]
    assert [(one.text, one.source, one.is_certain) for one in joined] == [
        ("ac", "user", True),
        ("a\nc", "user", True),
        ("abc", "document", False),
        ("a\nb\nc", "document", False),
    ]
    assert [one.is_of({"document"}) for one in joined] == [False] * 4
    assert [one.is_of({"document", "user"}) for one in joined] == [True] * 4


def test_texts_that_are_rewritten_as_one_become_the_strangers() -> None:
    def rewrite(one: PromptText) -> str:
        return one.text.replace("ab", "X")

    (message,) = with_prompt_texts(user(text("a"), document("b"), text("c")), rewrite).messages
    assert message["content"] == [document("Xc")]
    (message,) = with_prompt_texts(user(text("a"), document("-"), text("b")), rewrite).messages
    assert message["content"] == [text("X"), document("-")]


def test_a_guard_is_shown_the_parts_of_its_sources() -> None:
    request = user(text("a"), document("b"))
    assert only_from(request, {"user"}) == user(text("a"))
    assert only_from(request, {"document"}) == user(document("b"))
    assert only_from(request, {"user", "document"}) is request
    assert only_from(request, {"tool"}).messages == ()


@pytest.mark.parametrize(
    ("message", "taint"),
    [
        ({"role": "critic", "content": "a"}, "unknown"),
        ({"role": "user", "content": [{"type": "widget", "text": "a"}]}, "unknown"),
        ({"role": "user", "content": [{"type": "file", "file": {"file_id": "a"}}]}, "document"),
        ({"role": "ipython", "content": "a"}, "tool"),
        ({"role": "user", "content": "a", "documents": ["b"]}, "document"),
        ({"role": "user", "content": "a", "id": "b"}, None),
    ],
)
def test_wrap_taints_what_may_be_a_strangers(message: Any, taint: str | None) -> None:  # contract 8.15
    request = Wrap().on_request(make_request(messages=(message,)))
    assert request.taint == taint
    assert len(request.messages) == (1 if taint in (None, "unknown") else 2)


def test_engines_get_the_documents_of_the_messages_api_as_text() -> None:
    request = replace(user(text("a"), document("b")), endpoint="messages")
    (message,) = with_documents_as_text(request).messages
    assert message["content"] == [text("a"), text("b")]
    (message,) = with_documents_as_text(replace(user(document("b")), endpoint="messages")).messages
    assert message["content"] == "b"
    chat = replace(request, endpoint="chat")
    assert with_documents_as_text(chat) is chat


def test_a_file_in_a_text_of_the_users_is_a_document() -> None:
    part = {"type": "text", "text": "words", "file": {"filename": "name"}}
    sources = {one.text: one.source for one in prompt_texts(user(part))}
    assert (sources["words"], sources["name"]) == ("user", "document")


def test_documents_among_the_arguments_of_a_chat_template_are_documents() -> None:
    kwargs = {"a": "b", "documents": [{"title": "T", "text": "words"}], "c": "d"}
    request = replace(user(text("hi")), extra={"chat_template_kwargs": kwargs})
    found = {one.place: one for one in prompt_texts(request) if one.place.startswith("extra.chat_template_")}
    assert {place: one.source for place, one in found.items()} == {
        "extra.chat_template_kwargs": "user",
        "extra.chat_template_kwargs.documents": "document",
    }
    assert "words" not in found["extra.chat_template_kwargs"].text
    wrapped = Wrap().on_request(request)
    assert wrapped.taint == "document"
    assert wrapped.extra["chat_template_kwargs"]["documents"][0]["text"].startswith("<<DATA")

    def rewrite(one: PromptText) -> str:
        return one.text.replace("words", "X").replace('"d"', '"Y"')

    assert with_prompt_texts(request, lambda one: one.text) is request
    assert with_prompt_texts(request, rewrite).extra["chat_template_kwargs"] == {
        **kwargs,
        "documents": [{"title": "T", "text": "X"}],
        "c": "Y",
    }
