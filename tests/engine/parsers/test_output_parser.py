"""A parser at work: when it steps aside, and which calls it withholds."""

from engine.parsers import Parsers
from engine.protocol import Delta, Token, ToolCall
from tests.engine.parsers.streams import parse, request_with_tools, said, tokenised, tokens_of

R1 = Parsers(reasoning="deepseek_r1")
HERMES = Parsers(tool_calls="hermes")
CALL = '{"name": "f", "arguments": {"a": 1}}'


def test_it_steps_aside_for_an_engine_that_separates_reasoning() -> None:
    deltas = [
        Delta(text="Hm.", channel="reasoning"),
        Delta(text="Yes ", tokens=(Token(1, "Yes "),)),
        Delta(text="</think>", finish_reason="stop"),
    ]
    assert said(parse(R1, deltas)) == [("reasoning", "Hm."), ("content", "Yes </think>")]


def test_without_parallel_calls_later_calls_are_withheld_with_their_tokens() -> None:
    pieces = [
        f"<tool_call>{CALL}</tool_call>",
        "<tool_call>",
        '{"name": "g", "arguments": ',
        '{"secret"',
        ": 1}",
        "}",
    ]
    request = request_with_tools(parallel_tool_calls=False)
    made = parse(HERMES, tokenised(pieces), request)
    assert said(made) == [("f", '{"a": 1}')]
    assert {c for c, _ in tokens_of(made)} == {ToolCall(0, "f")}
    assert [t.id for _, t in tokens_of(made) if t.id is not None] == [0]
    assert made[-1].finish_reason == "tool_calls"


def test_it_steps_aside_for_an_engine_that_separates_calls() -> None:
    call = ToolCall(0, "f", "id1")
    deltas = [
        Delta(text="Sure. <"),
        Delta(text="{}", channel="tool_call", tool_call=call),
        Delta(text="<tool_call>", finish_reason="stop"),
    ]
    made = parse(HERMES, deltas)
    assert said(made) == [("content", "Sure. <"), ("f", "{}"), ("content", "<tool_call>")]
    assert made[-1].finish_reason == "stop"


def test_a_length_limit_stays_the_finish_reason_inside_a_call() -> None:
    deltas = [Delta(text='<tool_call>{"name": "f", "arguments": {"a'), Delta(finish_reason="length")]
    assert parse(HERMES, deltas)[-1].finish_reason == "length"
