"""Text that an upstream sends in the middle of a tool call."""

from typing import Any

import pytest

from engine.protocol import Delta, GenerationRequest
from engine.upstream.openai.stream import StreamTranslator


def call(arguments: str, name: str | None = None) -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    part = {"index": 0, "function": function} | ({"id": "c1"} if name else {})
    return {"tool_calls": [part]}


def deltas_of(events: list[dict[str, Any]]) -> list[Delta]:
    translator = StreamTranslator(GenerationRequest(request_id="r", model="m", endpoint="chat"))
    deltas: list[Delta] = []
    for event in events:
        deltas += translator.feed({"choices": [{"index": 0, "delta": event}]})
    deltas += translator.feed({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    return [*deltas, *translator.finish(complete=True)]


def in_order(deltas: list[Delta]) -> list[tuple[str, str]]:
    said: list[tuple[str, str]] = []
    for delta in deltas:
        if said and said[-1][0] == delta.channel:
            said[-1] = (delta.channel, said[-1][1] + delta.text)
        elif delta.text:
            said.append((delta.channel, delta.text))
    return said


@pytest.mark.parametrize("channel", ["content", "reasoning_content"])
def test_text_in_the_middle_of_a_call_comes_after_it(channel: str) -> None:
    events = [
        {"content": "a"},
        call('{"x"', "f"),
        {channel: "b"},
        {channel: "c"},
        call(":1}"),
        {"content": "d"},
    ]
    deltas = deltas_of(events)
    first = [("content", "a"), ("tool_call", '{"x":1}')]
    after = [("content", "bcd")] if channel == "content" else [("reasoning", "bc"), ("content", "d")]
    assert in_order(deltas) == [*first, *after]
    totals = [delta.usage.completion_tokens for delta in deltas if delta.usage]
    assert totals == sorted(totals)


def test_text_in_the_event_that_begins_a_call_comes_before_it() -> None:
    events = [{"content": "a", **call('{"x"', "f")}, {"content": "b", **call(":1}")}]
    assert in_order(deltas_of(events)) == [("content", "a"), ("tool_call", '{"x":1}'), ("content", "b")]


def test_text_after_a_call_that_never_ends_is_not_lost() -> None:
    assert in_order(deltas_of([call('{"x"', "f"), {"content": "b"}])) == [
        ("tool_call", '{"x"'),
        ("content", "b"),
    ]


def test_text_after_a_call_without_arguments_does_not_wait() -> None:
    deltas = deltas_of([call("", "f"), {"content": "b"}])
    assert ("content", "b") in in_order(deltas)


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [("null", "{}"), ("5", "5"), ('"x"', '"x"'), ("[]", "[]"), ('"{\\"x\\":1}"', '{"x":1}')],
)
def test_text_after_arguments_that_are_no_object_does_not_wait(arguments: str, meant: str) -> None:
    translator = StreamTranslator(GenerationRequest(request_id="r", model="m", endpoint="chat"))
    events = [call(arguments[:3], "f"), *([call(arguments[3:])] if arguments[3:] else []), {"content": "b"}]
    chunks = [{"choices": [{"index": 0, "delta": event}]} for event in events]
    deltas = [delta for chunk in chunks for delta in translator.feed(chunk)]
    assert in_order(deltas) == [("tool_call", meant), ("content", "b")]


def test_text_in_the_middle_of_arguments_that_are_a_string_comes_after_them() -> None:
    events = [call('"{\\"x', "f"), {"content": "b"}, call('\\":1}"')]
    assert in_order(deltas_of(events)) == [("tool_call", '{"x":1}'), ("content", "b")]
