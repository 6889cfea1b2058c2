"""Events of the Messages API become deltas; a stream that breaks its grammar becomes none."""

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Delta, EngineError, SamplingParams, ToolCall, Usage
from engine.upstream.limits import TooMuchError, UpstreamOptions
from engine.upstream.messages.signatures import MAX_SIGNATURE, Signatures
from engine.upstream.messages.stream import StreamTranslator
from tests.engine.upstream.messages.asked import (
    STOP,
    Event,
    answer,
    begin,
    block,
    changed,
    end,
    piece,
    places,
    signature,
    start,
    stop,
)
from tests.engine.upstream.openai.asked import chat
from tests.helpers import options_with

TEXT, THINKING = block(0, "text", "a"), block(0, "thinking", "a")


def translated(
    events: list[Event],
    signatures: Signatures | None = None,
    options: UpstreamOptions | None = None,
    **asked: Any,
) -> list[Delta]:
    translator = StreamTranslator(chat(**asked), options or UpstreamOptions(), signatures)
    deltas = [delta for event in events if event != STOP for delta in translator.feed(event)]
    return deltas + translator.finish(complete=STOP in events)


def told(deltas: list[Delta]) -> list[tuple[str, str]]:
    return [(delta.channel, delta.text) for delta in deltas if delta.text]


def test_every_kind_of_block_has_its_channel() -> None:
    events = answer(
        [*block(0, "thinking", "Let me ", "see.")],
        [*block(1, "text", "I ", "call.")],
        [*block(2, "tool_use", '{"a":', "1}", name="f", id="theirs")],
        [*block(3, "tool_use", name="g")],
        reason="tool_use",
    )
    deltas = translated(events)
    assert told(deltas) == [
        ("reasoning", "Let me "),
        ("reasoning", "see."),
        ("content", "I "),
        ("content", "call."),
        ("tool_call", '{"a":'),
        ("tool_call", "1}"),
        ("tool_call", "{}"),
    ]
    assert [delta.tool_call for delta in deltas if delta.tool_call] == [
        ToolCall(0, "f", "theirs"),
        ToolCall(0, "f", "theirs"),
        ToolCall(1, "g", "theirs_3"),
    ]
    assert [delta.finish_reason for delta in deltas if delta.finish_reason] == ["tool_calls"]
    assert deltas[-1].finish_reason


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("null", "{}"),
        (" ", "{}"),
        ('""', "{}"),
        (r'"{\"a\": \"}\"}"', '{"a": "}"}'),
        (r'"{\"a\"', r'"{\"a\"'),
        ("nul", "nul"),
    ],
)
def test_an_input_that_is_a_string_or_null_is_an_object_wherever_it_is_cut(written: str, meant: str) -> None:
    for at in range(len(written) + 1):
        deltas = translated(answer([*block(0, "tool_use", written[:at], written[at:])], reason="tool_use"))
        assert "".join(delta.text for delta in deltas if delta.tool_call) == meant


@pytest.mark.parametrize("given", [None, "", {}])
def test_an_input_that_is_nothing_is_no_arguments(given: Any) -> None:
    nothing = changed(piece(0, "tool_use", ""), ("delta", "partial_json"), None)
    events = answer([start(0, "tool_use", input=given), nothing, stop(0)], reason="tool_use")
    assert told(translated(events)) == [("tool_call", "{}")]


def test_text_that_comes_with_a_blocks_start_is_part_of_it() -> None:
    events = answer(block(0, "text", "b", text="a"), block(1, "tool_use", input={"a": 1}))
    assert told(translated(events)) == [("content", "a"), ("content", "b"), ("tool_call", '{"a":1}')]


@pytest.mark.parametrize(
    ("reason", "finish", "is_cut"),
    [
        ("end_turn", "stop", False),
        ("max_tokens", "length", True),
        ("model_context_window_exceeded", "length", True),
        ("tool_use", "tool_calls", False),
        ("refusal", "content_filter", True),
        ("pause_turn", "stop", True),
        ("something_new", "stop", True),
    ],
)
def test_each_stop_reason_has_its_finish_reason(reason: str, finish: str, is_cut: bool) -> None:
    """Contract 2.9."""
    explained = {"stop_details": {"type": "refusal", "explanation": "hunter2"}}
    last = translated(answer(TEXT, reason=reason, **explained))[-1]
    assert (last.finish_reason, last.stop_reason, last.is_cut) == (finish, None, is_cut)


def test_a_stop_sequence_is_told_only_if_it_is_the_callers() -> None:
    for sequence, told in (("END", "END"), ("hunter2", None)):
        events = answer(TEXT, reason="stop_sequence", stop_sequence=sequence)
        last = translated(events, sampling=SamplingParams(stop=("END",)))[-1]
        assert (last.finish_reason, last.stop_reason) == ("stop", told)


def test_the_prompt_counts_with_its_cached_tokens() -> None:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 100}
    deltas = translated([begin(**usage), *TEXT, end(num_tokens=7), STOP])
    assert deltas[0].usage == Usage(123, 2, 20, cache_written_tokens=100)
    assert deltas[-1].usage == Usage(123, 7, 20, cache_written_tokens=100)


def test_the_tokens_that_a_cache_keeps_for_an_hour_are_counted_apart() -> None:
    by_age = {"ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 70}
    usage = {"input_tokens": 3, "cache_creation_input_tokens": 100, "cache_creation": by_age}
    last = translated([begin(**usage), *TEXT, end(num_tokens=7), STOP])[-1]
    assert last.usage == Usage(103, 7, 0, cache_written_tokens=100, cache_written_1h_tokens=70)


@pytest.mark.parametrize("absurd", [None, -7, 2**63, 10**30, 1.5, True, "9"])
def test_a_count_that_makes_no_sense_is_not_used(absurd: Any) -> None:
    usage = translated(
        [begin(input_tokens=absurd, output_tokens=absurd), *TEXT, end(num_tokens=absurd), STOP]
    )[-1].usage
    assert usage == Usage(0, 1)


def test_later_counts_take_the_place_of_earlier_ones() -> None:
    last = {"type": "message_delta", "delta": {"stop_reason": None}, "usage": {"output_tokens": 11}}
    usage = translated([begin(), *TEXT, end(num_tokens=5), last, STOP])[-1].usage
    assert usage == Usage(3, 11)


def test_pings_and_unknown_events_are_no_part_of_an_answer() -> None:
    odd: list[Event] = [{"type": "ping"}, {"type": "something_new", "text": "hunter2"}]
    events = [each for event in answer(TEXT) for each in (*odd, event)]
    assert told(translated(events)) == [("content", "a")]


def test_what_no_hook_can_read_goes_no_further() -> None:
    cited = {"type": "citations_delta", "citation": {"cited_text": "hunter2"}}
    events = answer(
        [start(0, "thinking"), piece(0, "thinking", "a"), signature(0, "hunter2"), stop(0)],
        [start(1, "redacted_thinking", data="hunter2"), stop(1)],
        [start(2, "text"), {"type": "content_block_delta", "index": 2, "delta": cited}, stop(2)],
    )
    assert told(translated(events)) == [("reasoning", "a")]
    assert "hunter2" not in str(translated(events))


def test_a_signature_is_remembered_for_the_text_that_it_signs() -> None:
    signatures = Signatures()
    thinking = [
        start(0, "thinking"),
        piece(0, "thinking", "a"),
        signature(0, "si"),
        signature(0, "gn"),
        stop(0),
    ]
    translated(answer(thinking), signatures)
    assert signatures.blocks("a") == [{"type": "thinking", "thinking": "a", "signature": "sign"}]
    assert signatures.blocks("b") == signatures.blocks("") == signatures.blocks(None) == []
    with pytest.raises(EngineError):
        translated(
            [begin(), start(0, "thinking"), piece(0, "thinking", "b"), signature(0, "x"), stop(0)], signatures
        )
    assert signatures.blocks("b") == []


def test_the_oldest_signatures_are_forgotten() -> None:
    signatures = Signatures(max_chars=10)
    for text in "abcb":
        signatures.add(hashlib.sha256(text.encode()).digest(), "12345")
    assert [bool(signatures.blocks(text)) for text in "abc"] == [False, True, True]


BEGUN = [begin()]
NONSENSE: dict[str, list[Event]] = {
    "no beginning": [*TEXT, end(), STOP],
    "two beginnings": [begin(), begin(), *TEXT, end(), STOP],
    "a beginning with content": [{"type": "message_start", "message": {"content": [{"type": "text"}]}}],
    "a gap": [*BEGUN, *block(1, "text", "a"), end(), STOP],
    "an index twice": [*BEGUN, *TEXT, *TEXT, end(), STOP],
    "a delta outside": [*BEGUN, piece(0, "text", "a"), end(), STOP],
    "a delta after the stop": [*BEGUN, *TEXT, piece(0, "text", "a"), end(), STOP],
    "a delta of another block": [*BEGUN, start(0, "text"), piece(1, "text", "a"), stop(0), end(), STOP],
    "two open blocks": [*BEGUN, start(0, "text"), start(1, "text"), stop(1), stop(0), end(), STOP],
    "another kind": [*BEGUN, start(0, "text"), piece(0, "thinking", "a"), stop(0), end(), STOP],
    "a signed text": [*BEGUN, start(0, "text"), signature(0, "a"), stop(0), end(), STOP],
    "an unknown block": [*BEGUN, start(0, "server_tool_use"), stop(0), end(), STOP],
    "an end inside of a block": [*BEGUN, start(0, "text"), end(), STOP],
    "a block after the end": [*BEGUN, end(), *TEXT, STOP],
    "a call without a name": [*BEGUN, *block(0, "tool_use", name=""), end(), STOP],
    "a call of a list": [*BEGUN, *block(0, "tool_use", input=[1]), end(), STOP],
    "a call with two inputs": [*BEGUN, *block(0, "tool_use", "{}", input={"a": 1}), end(), STOP],
    "a signature that is none": [*BEGUN, *block(0, "thinking", "a", signature={"a": "b"}), end(), STOP],
    "a text that is none": [*BEGUN, *block(0, "text", 7), end(), STOP],  # type: ignore[arg-type]
    "an end of nothing": [end(), STOP],
    "no type": [{}],
}


@pytest.mark.parametrize("name", NONSENSE)
def test_a_stream_that_breaks_the_grammar_is_no_answer(name: str) -> None:
    with pytest.raises((LookupError, TypeError, AttributeError, ValueError)):
        translated(NONSENSE[name])


@pytest.mark.parametrize("length", range(len(answer(TEXT))))
def test_a_stream_that_ends_early_is_no_answer(length: int) -> None:
    with pytest.raises(EngineError, match="broke off"):
        translated(answer(TEXT)[:length])


@pytest.mark.parametrize("kind", ["text", "thinking", "tool_use"])
def test_an_output_is_bounded(kind: str) -> None:
    events = answer(block(0, kind, *["12345"] * 3))
    with pytest.raises(TooMuchError, match="an output is too long"):
        translated(events, options=options_with(UpstreamOptions, max_upstream_output=14))


def test_an_answer_longer_than_its_max_tokens_is_refused() -> None:
    with pytest.raises(TooMuchError, match="max_tokens"):
        translated(answer(block(0, "text", *"a" * 1000)), sampling=SamplingParams(max_tokens=1))


def test_a_signature_is_bounded_wherever_it_comes() -> None:
    long = "a" * (MAX_SIGNATURE + 1)
    for signed in (block(0, "thinking", "a", signature=long), [start(0, "thinking"), signature(0, long)]):
        with pytest.raises(TooMuchError, match="signature"):
            translated(answer(signed))


def test_blocks_without_text_are_bounded() -> None:
    events = [begin(), *(event for i in range(20_000) for event in block(i, "redacted_thinking"))]
    with pytest.raises(TooMuchError, match="blocks"):
        translated(events)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 2**70) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=2),
    max_leaves=4,
)
WHOLE = answer(
    block(0, "thinking", "a", "b"),
    block(1, "text", "c"),
    block(2, "tool_use", '{"a":', "1}"),
    reason="tool_use",
)


@given(st.sampled_from(places(WHOLE)[1:]), JSON)
def test_any_changed_value_is_read_or_refused(place: tuple[Any, ...], new: Any) -> None:
    """Whatever an upstream sends, the translator raises only what the engine makes an error of."""
    events = changed(WHOLE, place, new)
    try:
        deltas = [d for d in translated([e for e in events if e]) if d.text or d.finish_reason]
    except (LookupError, ArithmeticError, TypeError, AttributeError, ValueError, EngineError):
        return
    assert all(isinstance(delta.text, str) for delta in deltas)
    assert [delta.finish_reason is not None for delta in deltas] == [False] * (len(deltas) - 1) + [True]
    assert all((delta.tool_call is not None) == (delta.channel == "tool_call") for delta in deltas)
