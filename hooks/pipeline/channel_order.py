"""Keeps what leaves on several channels in the order of the engine (contract 2.16).

The text that a hook holds of a channel is in the way when the engine goes on with another channel. What the
hook would release if the channel ended there leaves at once, and the hook still decides on the text as if
nothing had happened. Where a hook cannot be asked in this way, the other channels wait for a moment.
"""

from engine.protocol import Delta
from hooks.api import rewind, suppress, terminate
from hooks.decisions.failure import HookError
from hooks.pipeline.ask import Asking
from hooks.pipeline.fragments import Fragment, text_of
from hooks.pipeline.guarded_request import GuardedRequest
from hooks.pipeline.look_ahead import last_call
from hooks.pipeline.piece import Piece
from hooks.pipeline.release import Ledger
from hooks.pipeline.stage import Ending, HookStage
from hooks.pipeline.stream import Stream


def let_leave(
    guarded: GuardedRequest, stream: Stream, ledger: Ledger
) -> Asking[tuple[list[Fragment], Ending | None]]:
    """The part of the held text of `stream` that leaves, because the engine goes on with another channel.
    Each hook is shown the text that the one before it lets leave. Also returns the verdict that ends things,
    if one came."""
    left: list[Fragment] = []
    for place, stage in enumerate(stream.stages):
        if stage.is_closed or stage.hook.is_shadow:
            continue
        if stage.num_fused:
            fragments = yield from stage.give_up()
        else:
            fragments = yield from _ahead_of(guarded, stage)
        if fragments:
            piece = Piece.of(fragments, ledger)
            ends = yield from stream.feed(piece, is_final=False, begin=place + 1)
            left += piece.fragments
            if ends is not None:
                return left, ends
    return left, None


def _ahead_of(guarded: GuardedRequest, stage: HookStage) -> Asking[list[Fragment]]:
    """The part of its held text that the hook would release if the channel ended here. It keeps a copy of the
    held text, to decide on it with the text that may follow."""
    held = stage.held
    if not held.num_characters or not stage.hook.is_copyable or stage.judged is not None or stage.is_ahead:
        return []
    asked = yield from last_call(guarded, stage, [Fragment("")], guarded.suspicions)
    if isinstance(asked.reply, terminate | rewind | suppress):
        return []
    fragments = held.fragments
    copy = [Fragment(one.text, is_restored=one.is_restored) for one in fragments]
    held.replace(copy)
    try:
        released, _ = asked.settle(fragments, [])
    except HookError:
        held.replace(fragments)
        return []
    text, before = text_of(released), stage.ahead or ""
    if not text.startswith(before):
        held.replace(fragments)
        return []
    released, _ = stage.without_ahead(released, None)
    stage.ahead, stage.is_ahead = text, True
    stage.context.is_cut = guarded.request.steers_end
    return released


class Waiting:
    """Released text of other channels, which waits for the held text of an earlier one."""

    def __init__(self, stream: Stream, room: int) -> None:
        """`room`: characters that may wait."""
        self.stream = stream
        self.deltas: list[Delta] = []
        self._room = room

    @classmethod
    def begin(cls, stream: Stream) -> "Waiting | None":
        """Wait for the rest of the stream's held text, for as many characters as its hooks say that they hold
        at most. A hook that does not say so is not waited for."""
        rooms = [stage.hook.max_hold for stage in _holding(stream)]
        room = 0 if None in rooms else sum(filter(None, rooms))
        return cls(stream, room) if room else None

    def add(self, stream: Stream, released: list[Delta]) -> bool:
        """Whether the wait has ended: text of the stream that is waited for has left, or none of it is held,
        or too much of other channels waits."""
        if stream is self.stream:
            self.deltas = [*released, *self.deltas]
            return released != [] or not _holding(stream)
        self.deltas += released
        self._room -= sum([len(delta.text) for delta in released])
        return self._room < 0


def _holding(stream: Stream) -> list[HookStage]:
    """The stages that keep text of the stream from the client."""
    return [
        stage
        for stage in stream.stages
        if stage.held.num_characters and not (stage.hook.is_shadow or stage.is_ahead)
    ]
