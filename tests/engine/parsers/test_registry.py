"""A request's parsers, one set for each output, and the count of reasoning tokens."""

from dataclasses import replace

import pytest
from hypothesis import given

from engine.parsers import Format, Parsers
from engine.parsers.json_call import read_call
from engine.parsers.registry import tool_calls_of
from engine.protocol import Delta, Usage
from engine.protocol.parts import PARSERS, PartError
from tests.engine.parsers.streams import (
    CUTS,
    cut_at,
    parse,
    request_with_tools,
    said,
    tokenised,
    tokens_of,
    untold,
)
from tests.helpers import make_request

QWEN3 = Parsers(reasoning="qwen3")
HERMES = Parsers(tool_calls="hermes")
CALL = '{"name": "f", "arguments": {"a": 1}}'


def test_reasoning_tokens_are_counted_unless_the_engine_counts_them() -> None:
    deltas = [
        replace(delta, usage=Usage(5, i))
        for i, delta in enumerate(tokenised(["<think>", "Hm", ".", "</think>", "Yes"]), 1)
    ]
    made = parse(QWEN3, deltas)
    assert made[-1].usage == Usage(5, 6, reasoning_tokens=3)
    deltas[-1] = replace(deltas[-1], usage=Usage(5, 6, reasoning_tokens=7))
    assert parse(QWEN3, deltas)[-1].usage == Usage(5, 6, reasoning_tokens=7)


def test_outputs_do_not_share_a_state() -> None:
    deltas = [
        Delta(index=0, text="<think>a"),
        Delta(index=1, text="</think>b"),
        Delta(index=0, text="c"),
        Delta(index=1, finish_reason="length"),
    ]
    made = parse(QWEN3, deltas)
    assert [(d.index, d.channel, d.text) for d in made] == [
        *((0, "reasoning", "a"), (1, "content", "b"), (0, "reasoning", "c"), (1, "content", ""))
    ]


def test_calls_are_parsed_only_if_the_request_lets_the_model_call() -> None:
    text = f"<tool_call>{CALL}</tool_call>"
    for request in (make_request(), request_with_tools(tool_choice="none")):
        assert said(parse(HERMES, untold([text]), request)) == [("content", text)]


def test_a_package_may_add_a_format(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"acme": Format(read_call, begin=("<acme>",), end=("</acme>",)), "other": 5}
    monkeypatch.setattr(type(PARSERS), "load", lambda _, name: parts[name])
    tool_calls_of.cache_clear()
    made = parse(Parsers(tool_calls="acme"), untold(list(f"So:<acme>{CALL}</acme>")))
    assert said(made) == [("content", "So:"), ("f", '{"a": 1}')]
    with pytest.raises(PartError, match="no Format or ToolCalls"):
        Parsers(tool_calls="other")


@given(cuts=CUTS)
def test_reasoning_comes_first_and_calls_after_it(cuts: list[int]) -> None:
    text = (
        "<think>\nI could <tool_call> f.\n</think>\n\n"
        f"<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{CALL}\n</tool_call>"
    )
    pieces = cut_at(text, cuts)
    made = parse(Parsers("qwen3", "hermes"), tokenised(pieces))
    assert said(made) == [
        *(("reasoning", "\nI could <tool_call> f.\n"), ("f", '{"a": 1}'), ("f", '{"a": 1}'))
    ]
    ids = [t.id for _, t in tokens_of(made) if t.id is not None]
    assert ids == sorted(ids)
