"""A request's decisions in its own answer, for an operator who asks (contract 8.14)."""

from collections.abc import Callable

import orjson

from engine.protocol import Delta
from engine.streams.flow import Stage
from hooks.api.decision import Held
from hooks.pipeline.open_guard import OpenGuard
from proxy.storage.records import DecisionRecord
from proxy.wire.openai.answer import event

DECISION = "weir.decision"
HELD = "weir.held"
FIELD = "weir_decisions"


class AnswerDecisions:
    """One request's decisions. Subscribes to them."""

    def __init__(self, *, with_text: bool) -> None:
        """`with_text`: include the withheld text, if it is kept."""
        self.send: Callable[[bytes], None] | None = None
        """Sends events while the answer streams."""
        self._with_text = with_text
        self._unsent: list[bytes] = []
        self._held: dict[Held, int] = {}
        """By stream and hook, as last sent."""

    def __call__(self, record: DecisionRecord) -> None:
        self._unsent.append(orjson.dumps(record.json(with_text=self._with_text, with_places=True)))

    def take_events(self) -> bytes:
        """Take out the events of the decisions that were not sent yet."""
        unsent, self._unsent = self._unsent, []
        return b"".join(event(one, DECISION) for one in unsent)

    def before(self, frames_of: Callable[[Delta], bytes]) -> Callable[[Delta], bytes]:
        """As `frames_of`, with the events of decisions in front of the frames of the next delta."""

        def decided(delta: Delta) -> bytes:
            frames = frames_of(delta)
            return self.take_events() + frames

        return decided

    def added_to(self, body: bytes) -> bytes:
        """A JSON object with the decisions as one more field."""
        return b'%b,"%b":[%b]}' % (body[:-1], FIELD.encode(), b",".join(self._unsent))

    def tell(self, guard: OpenGuard) -> None:
        """Send the guard's decisions about the last delta, and what it holds. Otherwise nothing would be sent
        while it releases nothing."""
        if self.send is not None and (events := self.take_events() + self._held_events(guard)):
            self.send(events)

    def _held_events(self, guard: OpenGuard) -> bytes:
        """The events of the numbers of held characters that have changed."""
        held = {one._replace(num_held=0): one.num_held for one in guard.held()}
        before, self._held = self._held, held
        changed = [one for one in (before | held) if held.get(one, 0) != before.get(one, 0)]
        events = (orjson.dumps(one._replace(num_held=held.get(one, 0))._asdict()) for one in changed)
        return b"".join(event(one, HELD) for one in events)


class Telling(Stage):
    """Feeds the guard, which is the next stage, and has its decisions told."""

    __slots__ = ("_decisions", "_guard")

    def __init__(self, decisions: AnswerDecisions, guard: OpenGuard) -> None:
        self._decisions, self._guard = decisions, guard

    def feed(self, delta: Delta) -> None:
        self.next.feed(delta)
        if self.flow.is_full:
            self.flow.wait_for(self._tell())  # after the guard, which may wait
        else:
            self._decisions.tell(self._guard)

    async def _tell(self) -> None:
        self._decisions.tell(self._guard)
