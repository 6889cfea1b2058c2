import pytest

from engine.upstream.limits import Patience, TooMuchError, UpstreamOptions
from engine.upstream.sse import Event, EventReader, SSEDecoder
from tests.helpers import options_with


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def reader(clock: Clock) -> tuple[EventReader, Patience]:
    patience = Patience(
        options_with(UpstreamOptions, upstream_timeout=7, max_upstream_event=64 * 1024), clock
    )
    return EventReader(patience, SSEDecoder(), lambda event: event.data == b"[DONE]"), patience


def test_events_end_with_the_last_one() -> None:
    events, _ = reader(Clock())
    assert events.feed(b"data: a\n\n") == [Event(b"a")]
    assert events.feed(b"data: b\n\ndata: [DONE]\n\ndata: c\n\n") == [Event(b"b")]
    assert events.has_ended
    assert events.is_complete


@pytest.mark.parametrize("is_late", [False, True])
def test_only_the_end_of_the_stream_completes_an_event_without_an_empty_line(is_late: bool) -> None:
    clock = Clock()
    events, patience = reader(clock)
    patience.end()
    assert events.feed(b"data: cut") == []
    clock.now = 100.0 if is_late else 0.0
    assert events.feed(b"") == ([] if is_late else [Event(b"cut")])
    assert events.has_ended
    assert not events.is_complete


@pytest.mark.parametrize("has_finish", [False, True])
def test_too_much_after_the_finish_ends_the_stream_without_an_error(has_finish: bool) -> None:
    events, patience = reader(Clock())
    if has_finish:
        patience.end()
    comments = b": comment\n" * 100_000
    if has_finish:
        assert events.feed(comments) == []
        assert events.has_ended
    else:
        with pytest.raises(TooMuchError):
            events.feed(comments)


def test_only_whole_events_within_the_bound_are_read_in_another_way() -> None:
    events = EventReader(Patience(UpstreamOptions(), Clock()), SSEDecoder(max_event=99), lambda _: False)
    for begun, end in ((b"data: x", b"\n\n"), (b"event: error\n", b"\n"), (b"data: x\n", b"\n")):
        events.feed(begun)
        assert events.max_alike == 0
        events.feed(end)
        assert events.max_alike == 99
