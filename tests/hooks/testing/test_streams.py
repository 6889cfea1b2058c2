"""Streams are made of what an engine said, and cut anew without losing anything."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Delta, GenerationRequest, Token, ToolCall, Usage
from engine.streams.recording import Failure, Recording, TimedDelta
from hooks.testing import stream_of
from hooks.testing.streams import (
    Source,
    cut,
    is_interleaved,
    num_places,
    request_for,
    source_of,
    token_places,
)
from tests.helpers import make_token

RECORDINGS = Path(__file__).parents[2] / "recordings"


def stream(*deltas: Delta) -> Recording:
    return Recording(request_for(), tuple(TimedDelta(0.0, delta) for delta in deltas))


def deltas_of(recording: Recording) -> list[Delta]:
    return [timed.delta for timed in recording.deltas]


def chunks(recording: Recording) -> list[str]:
    return [delta.text for delta in deltas_of(recording)]


TOKENS = [make_token("a", 1), make_token("", 2, b"\xc3"), make_token("éb", 3, b"\xa9b"), make_token("", 4)]
MIXED = stream(
    Delta(text="why", tokens=(make_token("why", 9),), channel="reasoning", prompt_token_ids=(7,)),
    Delta(text="aéb", tokens=tuple(TOKENS), usage=Usage(1, 4)),
    Delta(text="other", index=1),
    Delta(text="cd", tokens=(make_token("cd", 5),)),
    Delta(channel="tool_call", tool_call=ToolCall(0, "f"), text="{}"),
    Delta(channel="tool_call", tool_call=ToolCall(1, "g")),
    Delta(finish_reason="tool_calls", usage=Usage(1, 5)),
    Delta(text="!", index=1, finish_reason="length"),
)
COMPLETION = GenerationRequest(request_id="r", model="m", endpoint="completions", prompts=("Once",))


def texts(recording: Recording) -> dict[object, str]:
    found: dict[object, str] = {}
    for delta in deltas_of(recording):
        key = delta.index, delta.channel, delta.tool_call and delta.tool_call.index
        found[key] = found.get(key, "") + delta.text
    return found


def test_a_text_is_cut_into_words_that_are_tokens() -> None:
    made = stream_of("Well, hello  there")
    assert chunks(made) == ["Well", ",", " hello", "  ", "there", ""]
    assert [token.id for delta in deltas_of(made) for token in delta.tokens] == [0, 1, 2, 3, 4]
    assert deltas_of(made)[-1].finish_reason == "stop"


def test_tokens_are_taken_as_they_are() -> None:
    made = stream_of(["hel", "lo"], channel="tool_call", tool_name="f")
    assert chunks(made) == ["hel", "lo", ""]
    assert {delta.tool_call for delta in deltas_of(made)} == {ToolCall(0, "f")}


def test_a_stream_may_continue_a_text_and_be_cut() -> None:
    made = stream_of("blue", prompt="What is it?", lead="Its name is", is_cut=True)
    assert made.request.messages[-1] == {"role": "assistant", "content": "Its name is"}
    assert deltas_of(made)[-1].finish_reason == "length"
    recorded = stream_of(RECORDINGS / "reasoning.jsonl", lead="Well,")
    assert recorded.request.messages[-1] == {"role": "assistant", "content": "Well,"}
    assert deltas_of(recorded) == deltas_of(stream_of(RECORDINGS / "reasoning.jsonl"))


def test_a_recording_is_read_and_parsed() -> None:
    path = RECORDINGS / "reasoning.jsonl"
    assert "<think>" in "".join(chunks(stream_of(path)))
    made = stream_of(path, reasoning_parser="qwen3")
    assert texts(made)[0, "reasoning", None].startswith("The user wants")
    assert texts(made)[0, "content", None] == "I cannot tell you that."


@pytest.mark.parametrize(
    ("source", "arguments", "reason"),
    [
        ("x", {"reasoning_parser": "qwen3"}, "reasoning_parser is not for a text or tokens"),
        (["x"], {"tool_call_parser": "hermes"}, "tool_call_parser is not for a text or tokens"),
        (MIXED, {"channel": "content"}, "channel is not for a recording"),
        (MIXED, {"tool_name": "f"}, "tool_name is not for a recording"),
        (MIXED, {"is_cut": True}, "is_cut is not for a recording"),
        ("x", {"lead": "y", "prompt": COMPLETION}, "lead: a completion continues its prompt"),
        ("x", {"channel": "thought"}, "channel is one of content, reasoning, tool_call, echo, not 'thought'"),
        (MIXED, {"reasoning_parser": "x"}, "reasoning_parser is one of .*qwen3.*, not 'x'"),
        (MIXED, {"tool_call_parser": "x"}, "tool_call_parser is one of .*hermes, .*, not 'x'"),
    ],
)
def test_an_argument_that_would_do_nothing_is_refused(
    source: Source, arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        stream_of(source, **arguments)


async def test_a_recording_is_parsed_in_an_async_test_too() -> None:
    assert (0, "reasoning", None) in texts(
        stream_of(RECORDINGS / "reasoning.jsonl", reasoning_parser="qwen3")
    )


def test_chunks_end_where_they_are_told_to() -> None:
    made = stream_of("Well, hello")
    assert chunks(cut(made, ())) == ["Well, hello"]
    assert chunks(cut(made, (2, 5))) == ["We", "ll,", " hello"]
    assert chunks(cut(made, (2, 11))) == ["We", "ll, hello", ""]
    assert chunks(cut(stream_of(""), (1,))) == [""]


def test_uncut_each_output_channel_and_call_is_one_chunk() -> None:
    made = cut(MIXED, ())
    assert chunks(made) == ["why", "aébcd", "{}", "", "", "other!"]
    assert [delta.index for delta in deltas_of(made)] == [0, 0, 0, 0, 0, 1]
    assert [delta.finish_reason for delta in deltas_of(made)] == [None] * 4 + ["tool_calls", "length"]
    assert [delta.usage for delta in deltas_of(made)] == [None] * 5 + [Usage(1, 5)]


def test_an_outputs_end_stays_after_its_text() -> None:
    call = Delta(channel="tool_call", tool_call=ToolCall(0, "f"), text="{}")
    end = Delta(text=" ok", finish_reason="stop", tokens=(make_token(" ok", 1),))
    made = deltas_of(cut(stream(Delta(text="Its"), call, end), (1,)))
    assert [(delta.channel, delta.text) for delta in made] == [
        ("content", "I"),
        ("content", "ts ok"),
        ("tool_call", "{}"),
        ("content", ""),
    ]
    assert [delta.finish_reason for delta in made] == [None] * 3 + ["stop"]
    assert [token.text for delta in made for token in delta.tokens] == ["I", "ts", " ok"]


def test_only_streams_that_continue_after_another_are_interleaved() -> None:
    assert is_interleaved(MIXED)
    assert not is_interleaved(stream_of("one two"))
    assert not is_interleaved(stream(Delta(text="a", finish_reason="stop"), Delta(text="b", index=1)))


def test_tokens_between_the_cuts_stay_whole() -> None:
    first, second = deltas_of(cut(stream(Delta(text="aéb", tokens=tuple(TOKENS))), (1,)))
    assert first.tokens == (TOKENS[0],)
    assert second.tokens == tuple(TOKENS[1:])


def test_a_token_that_is_cut_tells_nothing_of_its_other_part() -> None:
    _, second, last = deltas_of(cut(stream(Delta(text="aéb", tokens=tuple(TOKENS))), (1, 2)))
    assert second.tokens == (Token(None, "é", "é".encode()),)
    assert last.tokens == (Token(None, "b", b"b"), TOKENS[3])


def test_what_has_no_text_is_kept() -> None:
    made = stream(Delta(prompt_token_ids=(1, 2)), Delta(tokens=(make_token("", 3),), finish_reason="stop"))
    (only,) = deltas_of(cut(made, (1, 2)))
    assert (only.prompt_token_ids, only.tokens[0].id, only.finish_reason) == ((1, 2), 3, "stop")


async def test_a_stream_that_was_cut_short_or_failed_stays_so() -> None:
    made = Recording(request_for(), (TimedDelta(0.0, Delta(text="ab")),), Failure(0.0, "broke", 502))
    again = cut(made, (1,))
    assert again.failure == made.failure
    assert all(delta.finish_reason is None for delta in deltas_of(again))
    with pytest.raises(RuntimeError, match="broke"):
        async for _ in source_of(again):
            pass


@given(st.sets(st.integers(0, num_places(MIXED) + 1)))
def test_no_cut_changes_what_is_said(places: set[int]) -> None:
    again = cut(MIXED, places)
    deltas = deltas_of(again)
    assert texts(again) == texts(MIXED)
    for delta in deltas:
        assert not delta.tokens or "".join(token.text for token in delta.tokens) == delta.text
    ids = [token.id for delta in deltas for token in delta.tokens if token.id is not None]
    split = ({9} if places & {1, 2} else set()) | ({2, 3} if 5 in places else set())
    split |= {4, 5} if 7 in places else set()
    assert ids == [i for i in (9, 1, 2, 3, 4, 5) if i not in split]
    for index, reason in ((0, "tool_calls"), (1, "length")):
        own = [delta for delta in deltas if delta.index == index]
        assert [delta.finish_reason for delta in own] == [None] * (len(own) - 1) + [reason]
    assert deltas[0].prompt_token_ids == (7,)
    ends = {sum(len(d.text) for d in deltas[: i + 1]) for i in range(len(deltas))}
    assert ends >= {place for place in places if 0 < place <= num_places(MIXED)}


def test_cut_into_its_tokens_it_has_the_tokens_that_it_had() -> None:
    made = stream_of(RECORDINGS / "german.jsonl")
    tokens: list[Token] = [token for delta in deltas_of(made) for token in delta.tokens]
    again = cut(made, token_places(made))
    assert [token for delta in deltas_of(again) for token in delta.tokens] == tokens
    assert len(again.deltas) >= len(set(token_places(made)))
