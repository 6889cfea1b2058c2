"""Every text that a prompt is made of is found, and can be rewritten in its place."""

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import GenerationRequest, SamplingParams
from hooks import PromptText, prompt_texts, with_prompt_texts

TOOL = {"type": "function", "function": {"name": "f", "description": "SECRET", "parameters": {"SECRET": 1}}}


@pytest.fixture(autouse=True)
def mode() -> str:
    """Nothing runs here."""
    return "none"


def chat(*messages: dict[str, Any], **fields: Any) -> GenerationRequest:
    return GenerationRequest(request_id="r", model="m", endpoint="chat", messages=messages, **fields)


def upper(text: PromptText) -> str:
    return text.text.replace("secret", "SECRET")


def seen(request: GenerationRequest) -> dict[str, str]:
    return {text.place: text.text for text in prompt_texts(request)}


def call(arguments: str, **more: Any) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}, **more}


EVERYWHERE = {
    "content": chat({"role": "user", "content": "a secret"}),
    "a part": chat({"role": "user", "content": [{"type": "text", "text": "a secret"}]}),
    "another kind of part": chat({"role": "user", "content": [{"type": "thinking", "thinking": "secret"}]}),
    "a role of its own": chat({"role": "secret", "content": "a"}),
    "a name": chat({"role": "user", "name": "secret", "content": "a"}),
    "a tool's result": chat({"role": "tool", "tool_call_id": "c1", "content": "secret"}),
    "a call's id": chat({"role": "tool", "tool_call_id": "secret", "content": "a"}),
    "reasoning": chat({"role": "assistant", "reasoning_content": "secret", "content": None}),
    "arguments": chat({"role": "assistant", "content": None, "tool_calls": [call('{"a": "secret"}')]}),
    "arguments that are no JSON": chat({"role": "assistant", "tool_calls": [call("{secret")]}),
    "a call's name": chat({"role": "assistant", "tool_calls": [{"function": {"name": "secret"}}]}),
    "a call's unknown field": chat({"role": "assistant", "tool_calls": [call("{}", secret=[1])]}),
    "a call of the old form": chat({"role": "assistant", "function_call": {"arguments": "secret"}}),
    "an unknown field of a message": chat({"role": "user", "content": "a", "more": [{"secret": True}]}),
    "the name of one": chat({"role": "user", "content": "a", "secret": True}),
    "the name of a part's": chat({"role": "user", "content": [{"type": "text", "text": "a", "secret": 1}]}),
    "a part's own type": chat({"role": "user", "content": [{"type": "secret"}]}),
    "an image's address": chat(
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/secret"}}]}
    ),
    "a part's other field": chat(
        {"role": "user", "content": [{"type": "image_url", "image_url": {"detail": "secret"}}]}
    ),
    "a tool's description": chat({"role": "user", "content": "a"}, tools=({"function": {"a": "secret"}},)),
    "a tool's parameter": chat({"role": "user", "content": "a"}, tools=({"function": {"secret": {}}},)),
    "the tool that must be called": chat(
        {"role": "user", "content": "a"}, tool_choice={"function": {"name": "secret"}}
    ),
    "a field for an upstream": chat(
        {"role": "user", "content": "a"}, extra={"documents": [{"text": "secret"}]}
    ),
    "a template's arguments": chat(
        {"role": "user", "content": "a"}, extra={"chat_template_kwargs": {"x": "secret"}}
    ),
    "an upstream's setting": chat({"role": "user", "content": "a"}, extra={"reasoning_effort": "secret"}),
    "the name of an upstream's setting": chat({"role": "user", "content": "a"}, extra={"secret": 1}),
    "a stop string": chat({"role": "user", "content": "a"}, sampling=SamplingParams(stop=("a", "secret"))),
    "a completion's prompt": GenerationRequest(
        request_id="r", model="m", endpoint="completions", prompts=("a", "secret")
    ),
}


@pytest.mark.parametrize("place", EVERYWHERE)
def test_a_text_is_found_and_rewritten_wherever_it_stands(place: str) -> None:  # contract 8.6
    request = EVERYWHERE[place]
    assert any("secret" in text.text for text in prompt_texts(request))
    rewritten = with_prompt_texts(request, upper)
    assert rewritten != request
    assert "secret" not in repr(rewritten)
    assert repr(rewritten).replace("SECRET", "secret") == repr(request)


def test_what_is_left_as_it_is_is_the_same_object() -> None:
    messages = (
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [call('{"a":  1}')]},
    )
    request = chat(*messages, tools=(TOOL,), extra={"documents": ["d"]})
    assert with_prompt_texts(request, lambda text: text.text) is request
    request = replace(request, messages=(*messages, {"role": "user", "content": "secret"}))
    rewritten = with_prompt_texts(request, upper)
    assert [a is b for a, b in zip(rewritten.messages, request.messages, strict=True)] == [True, True, False]
    assert rewritten.tools is request.tools


def test_places_say_where() -> None:
    request = chat(
        {"role": "user", "name": "bob", "mood": "good", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": None, "tool_calls": [call('{"x": 1}')]},
        tools=({"function": {"name": "f"}},),
        sampling=SamplingParams(stop=("b",)),
        extra={"documents": ["d"], "guided_regex": "e", "seed_like": 7, "store": True},
    )
    assert seen(request) == {
        "messages[0].name": "bob",
        "messages[0]": "mood",
        "messages[0].mood": "good",
        "messages[0].content[0].text": "a",
        "messages[1].tool_calls[0].function.arguments": '{"x": 1}',
        "messages[1].tool_calls[0]": '{"id": "c1", "type": "function", "function": {"name": "f"}}',
        "tools[0]": '{"function": {"name": "f"}}',
        "extra.documents": '["d"]',
        "extra.guided_regex": "e",
        "extra": "seed_like",
        "stop[0]": "b",
    }
    assert {text.place for text in prompt_texts(request) if text.is_json} == {
        "messages[1].tool_calls[0].function.arguments",
        "messages[1].tool_calls[0]",
        "tools[0]",
        "extra.documents",
    }


@pytest.mark.parametrize("parts", [["a sec", "ret b"], ["a se", "", "cret", " b"]])
def test_a_text_that_only_reads_across_parts_is_found(parts: list[str]) -> None:
    """Templates write them one after another."""
    content = [{"type": "text", "text": part} for part in parts]
    (message,) = with_prompt_texts(chat({"role": "user", "content": content}), upper).messages
    assert message["content"] == [{"type": "text", "text": "a SECRET b"}]


def test_many_parts_that_are_rewritten_as_one_take_no_long_time() -> None:
    """Thirty thousand parts, in many times what they need on a free machine."""
    parts = [{"type": "text", "text": letter} for letter in "secret" * 5000]
    began = time.process_time()
    (message,) = with_prompt_texts(chat({"role": "user", "content": parts}), upper).messages
    assert time.process_time() - began < 2
    assert message["content"] == [{"type": "text", "text": "SECRET" * 5000}]


def test_a_text_that_only_reads_across_lines_is_found() -> None:
    content = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    found = [text.text for text in prompt_texts(chat({"role": "user", "content": content}))]
    assert found == ["one", "two", "onetwo", "one\ntwo"]


def test_texts_around_an_image_read_as_one_too() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://x/y.png"}}
    content = [{"type": "text", "text": "se"}, image, {"type": "text", "text": "cret"}]
    (message,) = with_prompt_texts(chat({"role": "user", "content": content}), upper).messages
    assert message["content"] == [{"type": "text", "text": "SECRET"}, image]


def test_bytes_are_no_text() -> None:  # contract 8.6
    content = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,secret", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": "secret", "format": "wav"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,secret", "filename": "a.pdf"}},
    ]
    request = chat({"role": "user", "content": content})
    assert [text.text for text in prompt_texts(request)] == ["low", "wav", "a.pdf"]
    assert with_prompt_texts(request, upper) is request


def test_a_name_with_a_dot_hides_nothing() -> None:
    part = {"type": "text", "text": "a", "x.type": "secret", "x.data": "secret"}
    request = chat({"role": "user", "x.role": "user secret", "content": [part]})
    assert "".join(text.text for text in prompt_texts(request)).count("secret") == 3


def test_a_stop_string_of_which_nothing_is_left_stops_nothing() -> None:
    request = chat({"role": "user", "content": "a"}, sampling=SamplingParams(stop=("secret", "b")))
    assert with_prompt_texts(request, lambda t: t.text.replace("secret", "")).sampling.stop == ("b",)


def test_what_should_be_json_and_is_not_is_an_error() -> None:
    request = chat({"role": "user", "content": "a"}, tools=(TOOL,))
    with pytest.raises(ValueError, match="line 1"):
        with_prompt_texts(request, lambda text: text.text[1:] if text.is_json else text.text)


def named(*names: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names), values, max_size=4)


INNER = ("secret", "type", "role", "content", "text", "tool_calls", "function", "arguments", "url", "file")
LEAVES = (
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["secret", "a", "", "data:x", "user"])
)
VALUES = st.recursive(LEAVES, lambda some: st.lists(some) | named(*INNER, values=some), max_leaves=8)


@given(
    st.lists(named("role", "content", "tool_calls", "secret", values=VALUES), max_size=3),
    st.lists(named("type", "function", "secret", values=VALUES), max_size=2),
    named("documents", "kwargs", values=VALUES),
)
def test_whatever_json_a_caller_sends_can_be_walked(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]], extra: dict[str, Any]
) -> None:
    """No text is lost on the way, and nothing is left of what is rewritten."""
    request = chat(*messages, tools=tuple(tools), extra=extra)
    assert with_prompt_texts(request, lambda text: text.text) is request
    rewritten = with_prompt_texts(request, upper)
    assert "secret" not in json.dumps([rewritten.messages, rewritten.tools, rewritten.extra])
