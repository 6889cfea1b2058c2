"""A cascade: `phrases` returns `suspect`, and the hook after it knows this when it sees the phrase."""

import asyncio
import re
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Delta, ToolCall
from hooks import Chunk, Verdict, emit
from hooks.builtin.phrases import Phrases
from tests.helpers import guard_all, make_deltas, pipeline_of, text_of
from tests.hooks.builtin.streams import PLACES, cut
from tests.hooks.detect.judging import PatternGuard

CHANNELS: tuple[Any, ...] = ("content", "reasoning", "tool_call")
WRITTEN = {"content": ["blue key", "Blue **key"], "reasoning": ["blue key", "Blue **key"]}
WRITTEN["tool_call"] = ["blue key", r"blu\u0065 key", r"\u0062lue ke\u0079"]


class Text(NamedTuple):
    """A text with a phrase: the text before it, the phrase as written, and the text after it."""

    before: str
    phrase: str
    after: str

    @property
    def whole(self) -> str:
        return "".join(self)


FILLER = st.lists(st.sampled_from(["so ", "blue ", "blue keys ", "a blue, "])).map("".join)


@st.composite
def texts(draw: st.DrawFn, channel: str) -> Text:
    """The phrase may end the text: then it is decided where the channel ends."""
    after = draw(st.sampled_from(["", "", "_", ".", " a"]))
    before, phrase = draw(FILLER), draw(st.sampled_from(WRITTEN[channel]))
    if channel == "tool_call":
        return Text(draw(st.sampled_from(['{"a": "', '"'])) + before, phrase, after)
    return Text(before, phrase, after)


@st.composite
def interleaved(draw: st.DrawFn) -> tuple[dict[str, Text], list[Delta]]:
    """Some channels' texts, and their deltas in any order; each channel's own are in order."""
    said, waiting = {}, []
    for channel in draw(st.lists(st.sampled_from(CHANNELS), min_size=1, unique=True)):
        said[channel] = draw(texts(channel))
        call = ToolCall(0, "send") if channel == "tool_call" else None
        pieces = cut(said[channel].whole, draw(PLACES))
        waiting.append(make_deltas(pieces, finish=False, channel=channel, tool_call=call))
    deltas = []
    while waiting := [one for one in waiting if one]:
        deltas.append(draw(st.sampled_from(waiting)).pop(0))
    end: Any = draw(st.sampled_from(["stop", "length"]))
    last = draw(st.sampled_from(deltas))
    return said, [*deltas, Delta(channel=last.channel, tool_call=last.tool_call, finish_reason=end)]


class Later:
    """Notes how much it was shown of each channel, and whether it knew then that the request is suspect."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, int, str | None]] = []

    def __call__(self, chunk: Chunk) -> Verdict:
        self.shown.append((chunk.channel, len(chunk.text), chunk.suspicion))
        return emit(chunk.pending)


@given(interleaved())
def test_a_suspicion_comes_no_later_than_the_text_that_it_is_about(  # contract 3.16
    stream: tuple[dict[str, Text], list[Delta]],
) -> None:
    said, deltas = stream
    later = Later()
    phrases = Phrases(["blue key"], action="suspect")
    released = asyncio.run(guard_all(pipeline_of(phrases, later), deltas))
    for channel, length, suspicion in later.shown:
        assert suspicion == "phrase" or length <= len(said[channel].before) + may_leave(channel, said, deltas)
    if len(said) == 1:
        assert {why for c, length, why in later.shown if length <= len(said[c].before)} <= {None}
    for channel, text in said.items():
        assert text_of(released, channel) == text.whole


BAD = r"[bB]lue [*]*key(?!s)"


@given(interleaved(), st.integers(1, 4))
def test_a_judge_of_suspect_requests_lets_no_phrase_pass(
    stream: tuple[dict[str, Text], list[Delta]], window: int
) -> None:
    said, deltas = stream
    phrases = Phrases(["blue key"], action="suspect")
    judge = PatternGuard(BAD, window=window, only_when="suspect", action="suppress")
    released = asyncio.run(guard_all(pipeline_of(phrases, judge), deltas))
    for channel, text in said.items():
        left = text_of(released, channel)
        if channel == "tool_call":
            assert left == ("" if text.phrase else text.before + text.after)  # contract 3.20
        elif is_whole(released) and not may_leave(channel, said, deltas):
            assert left == text.before + text.after
        else:  # the channel went on after another (contract 2.16)
            assert not re.search(BAD, left)


def may_leave(channel: Any, said: dict[str, Text], deltas: list[Delta]) -> int:
    """The characters of the channel's phrase that may leave before it is found: none, or all but its last if
    the engine goes on with another channel in between (contract 2.16)."""
    order = [delta.channel for delta in deltas if delta.text]
    first, last = order.index(channel), len(order) - order[::-1].index(channel)
    return max(0, len(said[channel].phrase) - 1) if {*order[first:last]} > {channel} else 0


def is_whole(released: list[Delta]) -> bool:
    return not any(delta.finish_reason == "content_filter" for delta in released)
