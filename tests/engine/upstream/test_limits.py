"""How much an upstream may send, and how long it may take: the bounds, and who is served meanwhile."""

import asyncio
from collections import Counter
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import SamplingParams, Usage
from engine.upstream.limits import SLICE, OutputCount, Patience, TooMuchError, UpstreamOptions
from engine.upstream.openai.engine import OpenAIEngine
from engine.upstream.openai.stream import StreamTranslator
from engine.upstream.sse import Event, SSEDecoder
from engine.upstream.usage import UsageCount
from tests.engine.upstream.openai.asked import chat, completion
from tests.helpers import options_with


def limited(max_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens)


def said(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


@given(st.lists(st.text("ab 😀", min_size=1, max_size=128), min_size=1, max_size=30), st.integers(1, 128))
def test_an_answer_of_max_tokens_is_never_too_long(tokens: list[str], size: int) -> None:
    """However long its tokens are, and whether they come together, or a token comes in several pieces."""
    text = "".join(tokens)
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    if len(pieces) > 16 * len(tokens):
        pieces = tokens
    translator = StreamTranslator(chat(sampling=limited(len(tokens))))
    deltas = [delta for piece in pieces for delta in translator.feed(said(piece))]
    deltas += [*translator.feed(said("", "stop")), *translator.finish(complete=True)]
    assert "".join(delta.text for delta in deltas) == text


@pytest.mark.parametrize("piece", ["a", "word ", "word " * 20_000])
@pytest.mark.parametrize("field", ["content", "text", "arguments"])
def test_an_output_longer_than_its_max_tokens_is_refused(piece: str, field: str) -> None:
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": piece}}
    delta = {"tool_calls": [call]} if field == "arguments" else {field: piece}
    choice = {"index": 0, "delta": delta} if field != "text" else {"index": 0, "text": piece}
    request = chat(sampling=limited(16)) if field != "text" else completion("Hi", sampling=limited(16))
    translator = StreamTranslator(request)
    length = 0
    with pytest.raises(TooMuchError, match="max_tokens"):
        while True:
            length += sum(len(delta.text) for delta in translator.feed({"choices": [choice]}))
            assert length <= 256 * (16 + 16)


def test_reasoning_is_bounded_by_the_longest_output_only() -> None:
    """Some servers do not count reasoning as tokens of the answer."""
    reasoning = {"choices": [{"index": 0, "delta": {"reasoning": "a" * 5000}}]}
    translator = StreamTranslator(
        chat(sampling=limited(1)), options_with(UpstreamOptions, max_upstream_output=50_000)
    )
    for _ in range(10):
        assert translator.feed(reasoning)
    with pytest.raises(TooMuchError, match="an output is too long"):
        translator.feed(reasoning)


@pytest.mark.parametrize("prompt", ["Hi " * 20_000, tuple(range(500))])
def test_an_echoed_prompt_does_not_count_as_output(prompt: Any) -> None:
    """Even if it cannot be told from the output, and looks like content."""
    request = completion(prompt, echo=True, sampling=limited(1))
    translator = StreamTranslator(request)
    text = prompt if isinstance(prompt, str) else "word " * len(prompt)
    translator.feed({"choices": [{"index": 0, "text": " " + text + "end", "finish_reason": "stop"}]})
    assert "".join(delta.text for delta in translator.finish(complete=True)) == " " + text + "end"


def test_without_max_tokens_an_output_has_a_longest_text() -> None:
    count = OutputCount(chat(), "", 100, UsageCount(Usage(0, 0)))
    assert count.add("content", 60, 1, 1) == Usage(0, 1)
    assert count.add("echo", 39, 0) == Usage(0, 1)
    with pytest.raises(TooMuchError, match="an output is too long"):
        count.add("content", 2, 1, 1)
    assert count.add("content", 1, 1, 1) == Usage(0, 2)  # what is too much was not counted


def test_an_output_may_come_in_some_pieces_for_each_token() -> None:
    count = OutputCount(chat(sampling=limited(1)), "", 10**6, UsageCount(Usage(0, 0)))
    count.add("content", 1, 16 + 256, 1)
    count.add("reasoning", 1, 1, 1)
    with pytest.raises(TooMuchError, match="max_tokens"):
        count.add("content", 1, 1, 1)


def test_an_event_with_absurdly_many_choices_is_refused() -> None:
    translator = StreamTranslator(chat())
    translator.feed({"choices": [{}] * 64})
    with pytest.raises(TooMuchError, match="choices"):
        translator.feed({"choices": [{}] * 65})


def test_patience_is_renewed_by_each_piece_of_the_answer() -> None:
    clock = [0.0]
    patience = Patience(UpstreamOptions(upstream_timeout=7), lambda: clock[0])
    assert patience.deadline == 7
    clock[0] = 5
    patience.received(has_piece=True)
    assert patience.deadline == 12


def test_patience_is_short_after_the_finish_and_is_not_renewed() -> None:
    clock = [0.0]
    patience = Patience(UpstreamOptions(), lambda: clock[0])
    patience.end()
    assert patience.deadline == 5
    clock[0] = 3
    patience.end()
    assert patience.deadline == 5


def test_silence_before_the_finish_does_not_count_after_it() -> None:
    patience = Patience(UpstreamOptions(), lambda: 0.0)
    patience.received(2 * 1024 * 1024)
    patience.end()
    patience.received(1024 * 1024)
    with pytest.raises(TooMuchError, match="too many bytes without a piece"):
        patience.received(1)


@given(st.integers(1, 10_000), st.lists(st.tuples(st.integers(1, SLICE), st.booleans()), max_size=50))
def test_bytes_without_an_answer_are_bounded(max_event: int, parts: list[tuple[int, bool]]) -> None:
    patience = Patience(options_with(UpstreamOptions, max_upstream_event=max_event), lambda: 0.0)
    silent = 0
    for num_bytes, has_answer in parts:
        silent += num_bytes
        if silent > 2 * (max_event + SLICE):
            with pytest.raises(TooMuchError, match="too many bytes without a piece"):
                patience.received(num_bytes)
            return
        patience.received(num_bytes)
        if has_answer:
            patience.received(has_piece=True)
            silent = 0


def test_a_whole_stream_is_bounded() -> None:
    patience = Patience(options_with(UpstreamOptions, max_upstream_answer=1000), lambda: 0.0)
    for _ in range(10):
        patience.received(100)
        patience.received(has_piece=True)
    with pytest.raises(TooMuchError, match="the stream is too long"):
        patience.received(1, has_piece=True)


@pytest.mark.parametrize("flood", [b"\n", b"\r", b":\n", b": hi\n\n", b"id: x\n", b"data: {}\n\n"])
async def test_others_get_their_turn_while_a_flood_is_read(
    upstream: Any, monkeypatch: pytest.MonkeyPatch, flood: bytes
) -> None:
    upstream.script = lambda body: [flood * (500_000 // len(flood)), said("a", "stop"), b"data: [DONE]\n\n"]
    turns = 0
    fed: list[tuple[int, int]] = []

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    class Watched(SSEDecoder):
        def feed(self, data: bytes) -> list[Event]:
            fed.append((turns, len(data)))
            return super().feed(data)

    monkeypatch.setattr("engine.upstream.engine.SSEDecoder", Watched)
    engine = OpenAIEngine(upstream.url)
    await engine.start()
    other = asyncio.get_running_loop().create_task(take_turns())
    try:
        async with aclosing(engine.generate(chat())) as stream:
            assert [delta.text async for delta in stream] == ["a"]
    finally:
        other.cancel()
        await engine.aclose()
    assert sum(length for _, length in fed) > 500_000
    assert max(length for _, length in fed) <= SLICE
    assert max(Counter(turn for turn, _ in fed).values()) <= 2  # the end of a read, and the next one's start
