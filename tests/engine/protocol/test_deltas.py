"""Joining deltas loses nothing, and cutting them keeps the first tokens."""

from collections import defaultdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Channel, Delta, FinishReason, PromptScores, Token, ToolCall, Usage
from engine.protocol.deltas import first_tokens, has_prompt, in_pieces, join

SCORES = PromptScores((), ((0.5,), (1.5,)))


@st.composite
def streams(draw: st.DrawFn) -> list[Delta]:
    """Any answer of an engine: outputs and channels mixed, tokens without text, an end to each output."""
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
        channel: Channel = draw(st.sampled_from(["content", "content", "reasoning", "tool_call", "echo"]))
        finish: FinishReason | None = "stop" if draw(st.integers(0, 9)) == 0 else None
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
                prompt_scores=None if index in begun else SCORES,
                usage=Usage(2, number) if counts else None,
            )
        )
        begun.add(index)
        if finish:
            ended.add(index)
    return deltas


def said(deltas: list[Delta]) -> dict[int, Any]:
    """Each output, however it is cut: its characters and tokens in order, and its end."""
    outputs: dict[int, Any] = defaultdict(list)
    for delta in deltas:
        stream = (delta.channel, delta.tool_call)
        told = outputs[delta.index]
        if has_prompt(delta):
            told.append((delta.prompt_token_ids, delta.prompt_scores))
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


@given(streams(), st.integers(0, 12))
def test_the_first_tokens_are_those_and_the_prompt(deltas: list[Delta], num_tokens: int) -> None:
    own = [delta for delta in deltas if delta.index == 0]
    kept = first_tokens(own, num_tokens)
    output, whole = ([t for d in part if d.channel != "echo" for t in d.tokens] for part in (kept, own))
    assert output == whole[:num_tokens]
    assert sum(delta.num_output_tokens for delta in kept) == len(output)
    assert [t for d in kept if d.channel == "echo" for t in d.tokens] == [
        t for d in own if d.channel == "echo" for t in d.tokens
    ]
    assert [d.prompt_token_ids for d in kept if d.prompt_token_ids] == [
        d.prompt_token_ids for d in own if d.prompt_token_ids
    ]
    assert [d.prompt_scores for d in kept if has_prompt(d)] == [SCORES for d in own if has_prompt(d)]
    assert all(d.finish_reason is None and d.stop_reason is None for d in kept)


@given(deltas=streams(), length=st.integers(1, 4))
def test_pieces_say_the_same(deltas: list[Delta], length: int) -> None:
    pieces = list(in_pieces(deltas, length))
    assert said(pieces) == said(deltas)
    assert all(len(piece.text) <= length + 1 for piece in pieces), "a token has up to two characters"
    assert [piece.usage for piece in pieces[-1:]] == [delta.usage for delta in deltas[-1:]]
