"""The decisions of all requests, as they are made, for those who subscribe to them."""

import logging
import math
from collections import Counter
from collections.abc import Callable

from hooks.api.decision import Decision, Listener
from proxy.storage.records import Asker, DecisionRecord
from proxy.telemetry.logs import log_fields

logger = logging.getLogger("weir.proxy")
decision_log = logging.getLogger("weir.decisions")

Subscriber = Callable[[DecisionRecord], object]
"""Is called on the event loop, in the request's context, before anything that follows from the decision
leaves. It returns at once."""


class DecisionFeed:
    """Passes each decision on to all subscribers. While there are none, no decision is made at all.

    Subscribers to all requests do not receive short clean holds: those that were shorter than `min_held`
    seconds, and whose text was released untouched. The hooks' tallies count how long text was held.
    """

    def __init__(self, *, keeps_withheld_text: bool = False, min_held: float = 0.0) -> None:
        self._min_held = min_held
        self.keeps_withheld_text = keeps_withheld_text
        self.num_requests: Counter[str] = Counter()
        """Requests whose decisions have a listener, by policy."""
        self.subscribers: tuple[Subscriber, ...] = ()
        self._deaf_to_holds: frozenset[Subscriber] = frozenset()

    @property
    def min_held(self) -> float:
        """As in `GuardFactory.open`. Infinite: no subscriber needs to know of holds."""
        return self._min_held if set(self.subscribers) - self._deaf_to_holds else math.inf

    def subscribe(self, subscriber: Subscriber, *, hears_holds: bool = True) -> Callable[[], None]:
        """Pass `subscriber` the decisions of all requests that begin from now on. Returns the function that
        ends this. `hears_holds`: False: it does not need holds. It may receive some all the same."""
        self.subscribers = (*self.subscribers, subscriber)
        if not hears_holds:
            self._deaf_to_holds |= {subscriber}

        def end() -> None:
            self.subscribers = tuple(one for one in self.subscribers if one is not subscriber)

        return end

    def listener(self, asker: Asker, own: Subscriber | None = None) -> Listener | None:
        """The listener of one request's guard; None: nobody listens. `own`: receives the decisions of
        this request alone, short clean holds included."""
        if not self.subscribers and own is None:
            return None
        self.num_requests[asker.policy] += 1

        def hear(decision: Decision) -> None:
            record = DecisionRecord.of(decision, asker, with_text=self.keeps_withheld_text)
            if not is_short(decision, self.min_held):
                self.publish(record)
            if own is not None:
                own(record)

        return hear

    def publish(self, record: DecisionRecord) -> None:
        """A subscriber that fails is logged, and harms neither the request nor the other subscribers."""
        for subscriber in self.subscribers:
            try:
                subscriber(record)
            except Exception as error:  # noqa: BLE001 - whatever happened, other subscribers get it
                # Only the error's type: its message may have the record.
                logger.error("a decision was not passed on (%s)", type(error).__name__)


def log_decision(record: DecisionRecord) -> None:
    """Log the decision in one line (`--decision-log`), without the withheld text. `answer_id`: the id in the
    answer's JSON."""
    fields = record.json()
    del fields["time"]
    fields["answer_id"] = fields.pop("request_id")
    log_fields(decision_log, "decided", fields)


def is_short(decision: Decision, min_held: float) -> bool:
    is_clean = decision.action == "hold" and not decision.num_withheld
    return is_clean and decision.held_seconds < min_held
