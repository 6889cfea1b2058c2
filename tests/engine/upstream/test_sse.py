import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.upstream.sse import Event, EventTooLongError, SSEDecoder

STREAM = (
    b": a comment\n\n"
    b'data: {"a": 1}\n\n'
    b"event: error\r\ndata: bad\r\n\r\n"
    b"data: two\ndata:lines\nid: 7\nretry: 3\n\n"
    b"data\n\n"
    b"event: nothing\n\n"
    b"data: \xc3\xa9: colons\r\r"
    b"data: [DONE]\n\n"
)
EVENTS = [
    Event(b'{"a": 1}'),
    Event(b"bad", "error"),
    Event(b"two\nlines"),
    Event(b""),
    Event(b"\xc3\xa9: colons"),
    Event(b"[DONE]"),
]


def decode(*pieces: bytes) -> list[Event]:
    decoder = SSEDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.flush()


def test_reads_events() -> None:
    assert decode(STREAM) == EVENTS


@given(st.lists(st.integers(0, len(STREAM))))
def test_cutting_changes_nothing(cuts: list[int]) -> None:
    cuts = [0, *sorted(cuts), len(STREAM)]
    assert decode(*(STREAM[a:b] for a, b in itertools.pairwise(cuts))) == EVENTS


def test_an_event_comes_with_its_last_byte() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"data: x\n") == []
    assert decoder.feed(b"\n") == [Event(b"x")]


def test_flush_gives_an_event_without_its_empty_line() -> None:
    assert decode(b"data: [DONE]") == [Event(b"[DONE]")]
    assert decode(b"data: [DONE]\r") == [Event(b"[DONE]")]


@given(
    st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b":", b" ", b"data", b"event", b"id", b"x", b"\x0b"])),
    st.lists(st.integers(0, 40)),
)
def test_lines_end_as_the_format_says(parts: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(parts)
    cuts = [0, *sorted(cuts), len(stream)]
    lines = re.split(rb"\r\n|\n|\r", stream + b"\n\n")
    assert decode(*(stream[a:b] for a, b in itertools.pairwise(cuts))) == decode(b"\n".join(lines))


@pytest.mark.parametrize("piece", [b"x" * 20, b"data: 12345\n", b"data\ndata:\n"])
def test_refuses_what_never_ends(piece: bytes) -> None:
    decoder = SSEDecoder(max_event=50)
    with pytest.raises(EventTooLongError, match="50 bytes"):
        for _ in range(30):
            decoder.feed(piece)


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\nid: 1\n\n"])
@pytest.mark.parametrize("lines", [[b"data: " + b"x" * 44], [b"data: " + b"x" * 20, b"data:" + b"y" * 18]])
@pytest.mark.parametrize("before", [b"", b"data: first\n\n"])
def test_refuses_an_event_that_is_too_long_and_comes_whole(
    before: bytes, lines: list[bytes], end: bytes
) -> None:
    event = b"\n".join(lines)
    assert len(event) == 50
    longest = 50 + len(b"\nid: 1") * (b"id" in end)
    assert len(SSEDecoder(longest).feed(before + event + end)) == 1 + bool(before)
    with pytest.raises(EventTooLongError):
        SSEDecoder(49).feed(before + event + end)


@given(
    st.lists(st.sampled_from([b"\r", b"\n", b"\n\n", b"data: ", b"data", b"event: e", b": ", b"x", b"xxxx"])),
    st.lists(st.integers(0, 60)),
    st.integers(1, 30),
)
def test_the_bound_of_an_event_does_not_depend_on_the_cut(
    parts: list[bytes], cuts: list[int], max_event: int
) -> None:
    def read(*pieces: bytes) -> list[Event] | None:
        decoder = SSEDecoder(max_event)
        try:
            return [event for piece in pieces for event in decoder.feed(piece)] + decoder.flush()
        except EventTooLongError:
            return None

    stream = b"".join(parts)
    cuts = [0, *sorted(cuts), len(stream)]
    assert read(*(stream[a:b] for a, b in itertools.pairwise(cuts))) == read(stream)


BLOCKS = [
    *(b"data: one\n\n", b"data: {}\n\n", b"data:two\n\n", b"data: three\nid: 4\n\n", b": hi\n\n"),
    *(b"event: error\ndata: bad\n\n", b"\n", b"data: \n\n", b"data: no end\n", b"x" * 17_000),
]


@given(st.lists(st.sampled_from(BLOCKS), max_size=8), st.lists(st.integers(0, 40_000), max_size=6))
def test_events_are_the_same_whichever_way_their_lines_end(blocks: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(blocks)
    cuts = [0, *sorted(cuts), len(stream)]
    assert decode(*(stream[a:b] for a, b in itertools.pairwise(cuts))) == decode(stream.replace(b"\n", b"\r"))
