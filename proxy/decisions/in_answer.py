"""The decisions of one request in its own answer, for the operator who asks for them (contract 8.14).

A stream has events of their own: `weir.decision` just before the events that follow from the decision, and
`weir.held` when the number of characters that a hook holds has changed. A whole answer has a field.
"""

from collections.abc import Awaitable, Callable
from contextlib import aclosing

import orjson
from aiohttp import web

from engine.protocol import Delta, Deltas, Rewind
from engine.rewindable import answered
from hooks.pipeline.decision import Held
from hooks.pipeline.open_guard import OpenGuard
from proxy.admin.operator import has_admin_key, is_operator
from proxy.decisions.record import DecisionRecord
from proxy.errors import APIError
from proxy.sse import event

HEADER = "X-Weir-Decisions"
DECISION = "weir.decision"
HELD = "weir.held"
FIELD = "weir_decisions"


class AnswerDecisions:
    """One request's decisions. Subscribes to them."""

    def __init__(self, *, with_text: bool) -> None:
        """`with_text`: tell the withheld text, if it is kept."""
        self.write: Callable[[bytes], Awaitable[None]] | None = None
        """Sends events while the answer streams."""
        self._with_text = with_text
        self._unsent: list[bytes] = []
        self._held: dict[Held, int] = {}
        """By stream and hook, as last told."""

    def __call__(self, record: DecisionRecord) -> None:
        self._unsent.append(orjson.dumps(record.json(with_text=self._with_text)))

    def take_events(self) -> bytes:
        """Take out the events of the decisions that were not sent yet."""
        unsent, self._unsent = self._unsent, []
        return b"".join(event(one, DECISION) for one in unsent)

    def before(self, frames_of: Callable[[Delta], bytes]) -> Callable[[Delta], bytes]:
        """As `frames_of`, with the events before a delta's frames of what was decided until then."""

        def told(delta: Delta) -> bytes:
            frames = frames_of(delta)
            return self.take_events() + frames

        return told

    def added_to(self, body: bytes) -> bytes:
        """A JSON object with the decisions as one more field."""
        return b'%b,"%b":[%b]}' % (body[:-1], FIELD.encode(), b",".join(self._unsent))

    async def watched(self, guard: OpenGuard, deltas: Deltas) -> Deltas:
        """The deltas for the guard. Once the guard is done with one, and takes the next, what it decided and
        what it holds is sent: nothing else would be, while it releases nothing."""
        rewind: Rewind | None = None
        async with aclosing(deltas):
            while (delta := await answered(deltas, rewind)) is not None:
                rewind = yield delta
                if self.write is not None and (events := self.take_events() + self._held_events(guard)):
                    await self.write(events)

    def _held_events(self, guard: OpenGuard) -> bytes:
        """The events of the numbers of held characters that have changed."""
        held = {one._replace(num_held=0): one.num_held for one in guard.held()}
        before, self._held = self._held, held
        changed = [one for one in (before | held) if held.get(one, 0) != before.get(one, 0)]
        events = (orjson.dumps(one._replace(num_held=held.get(one, 0))._asdict()) for one in changed)
        return b"".join(event(one, HELD) for one in events)


def asked_decisions(http: web.Request) -> AnswerDecisions | None:
    """The decisions to put into the answer; None if the request asks for none. Raises `APIError` 403 if it
    asks and is not the operator's, and 400 for another value of the header."""
    given = http.headers.get(HEADER)
    if given is None or (value := given.strip().lower()) == "false":
        return None
    if value != "true":
        raise APIError(400, f"{HEADER}: the value is true or false.", param=HEADER)
    if not is_operator(http):
        told = f"{HEADER}: only the operator of this server is told what its hooks decide."
        raise APIError(403, told, "permission_error", param=HEADER)
    decisions = http[ANSWER_DECISIONS] = AnswerDecisions(with_text=has_admin_key(http))
    return decisions


ANSWER_DECISIONS = web.RequestKey("answer_decisions", AnswerDecisions)
"""An error's answer finds here the decisions that led to it."""
