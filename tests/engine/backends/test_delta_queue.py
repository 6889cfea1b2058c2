"""What waits for a slow reader is joined, and says the same."""

import asyncio
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.backends.delta_queue import DeltaQueue, join
from engine.protocol import Delta, EngineError, Token, ToolCall, Usage


@st.composite
def streams(draw: st.DrawFn) -> list[Delta]:
    """What an engine may say: outputs and channels interleaved, textless tokens, one end to each output."""
    num_outputs = draw(st.integers(1, 3))
    counts = draw(st.booleans())
    deltas: list[Delta] = []
    begun: set[int] = set()
    ended: set[int] = set()
    for number in range(draw(st.integers(0, 25))):
        index = draw(st.integers(0, num_outputs - 1))
        if index in ended:
            continue
        texts = draw(st.lists(st.sampled_from(["", "a", "bc"]), max_size=3))
        tokens = tuple(Token(number, text, text.encode()) for text in texts)
        channel = draw(st.sampled_from(["content", "content", "reasoning", "tool_call", "echo"]))
        finish = "stop" if draw(st.integers(0, 9)) == 0 else None
        deltas.append(
            Delta(
                index=index,
                text="".join(texts),
                tokens=tokens if draw(st.booleans()) else (),
                channel=channel,
                tool_call=ToolCall(draw(st.integers(0, 1)), "f") if channel == "tool_call" else None,
                finish_reason=finish,
                stop_reason="x" if finish else None,
                prompt_token_ids=None if index in begun else (1, 2),
                usage=Usage(2, number) if counts else None,
            )
        )
        begun.add(index)
        if finish:
            ended.add(index)
    return deltas


def said(deltas: list[Delta]) -> dict[int, Any]:
    """What is said of each output, however it is cut: its characters and tokens in order, and its end."""
    outputs: dict[int, Any] = defaultdict(list)
    for delta in deltas:
        stream = (delta.channel, delta.tool_call)
        told = outputs[delta.index]
        if delta.prompt_token_ids is not None:
            told.append(delta.prompt_token_ids)
        if delta.tokens:
            assert "".join(token.text for token in delta.tokens) == delta.text
            told += [(stream, token) for token in delta.tokens]
        else:
            told += [(stream, character) for character in delta.text]
        if delta.finish_reason is not None:
            told.append((delta.finish_reason, delta.stop_reason))
    return outputs


@given(streams())
def test_joining_says_the_same_of_every_output(deltas: list[Delta]) -> None:
    joined = join(deltas)
    assert said(joined) == said(deltas)
    assert len(joined) <= len(deltas)
    usages = [delta.usage for delta in joined if delta.usage]
    assert usages == sorted(usages, key=lambda usage: usage.completion_tokens)
    assert usages[-1:] == [delta.usage for delta in deltas if delta.usage][-1:]
    assert join(joined) == joined


@given(st.lists(st.text("abc", min_size=1, max_size=2), min_size=1), st.booleans())
def test_one_output_that_waits_is_one_delta(texts: list[str], is_told: bool) -> None:
    parts = [
        Delta(text=text, tokens=(Token(i, text),) if is_told else (), usage=Usage(1, i))
        for i, text in enumerate(texts)
    ]
    (one,) = join([*parts, Delta(finish_reason="length", usage=Usage(1, 99))])
    assert (one.text, one.finish_reason, one.usage) == ("".join(texts), "length", Usage(1, 99))
    assert [token.id for token in one.tokens] == (list(range(len(texts))) if is_told else [])


async def test_a_reader_that_keeps_up_gets_each_delta_as_it_came() -> None:
    queue = DeltaQueue()
    for text in "abc":
        delta = Delta(text=text)
        queue.put(delta)
        (taken,) = await queue.get()
        assert taken is delta


async def test_a_reader_that_waits_is_woken_by_the_first() -> None:
    queue = DeltaQueue()
    async with asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(queue.get())
        await asyncio.sleep(0)
        queue.put(Delta(text="a"))
        queue.put(Delta(text="b"))
    assert reader.result() == [Delta(text="ab")]


async def test_an_error_comes_after_what_waits_and_stays() -> None:
    queue = DeltaQueue()
    queue.put(Delta(text="a"))
    queue.fail(EngineError("gone"))
    queue.put(Delta(text="b"))
    assert await queue.get() == [Delta(text="ab")]
    for _ in range(2):
        with pytest.raises(EngineError, match="gone"):
            await queue.get()


async def test_what_was_said_of_a_rewound_output_is_void_until_the_engine_has_heard_of_it() -> None:
    stream = DeltaQueue()
    stream.put(Delta(text="a"))
    stream.put(Delta(index=1, text="b"))
    stream.rewind(0)
    stream.put(Delta(text="c", finish_reason="stop"))
    stream.put(Delta(index=1, text="d"))
    assert [(d.index, d.text) for d in await stream.get()] == [(1, "bd")]
    stream.resume(0)
    stream.put(Delta(text="e"))
    assert [(d.index, d.text) for d in await stream.get()] == [(0, "e")]
