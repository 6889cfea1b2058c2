"""Each count's spending within its period, in this process and in all that share its state.

A day and a month are the calendar's. The last minute is estimated from two of the clock's minutes: all
spending of this one, and the share of the one before that still lies within 60 seconds. A process reports its
own spending, and learns the sums. It does so in one call for all requests that came since the last call. What
a failed call reported is reported again under the same name, because the state may have counted it.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple

from proxy.service.periods import Period
from proxy.storage.reports import Report
from proxy.storage.shared.protocol import Slot, State

logger = logging.getLogger("weir.proxy")

MINUTE = 60.0
RETRY = 1.0
"""Seconds between two calls of a state that does not answer. A process's own spending then decides alone."""
LOG_INTERVAL = 60.0
MAX_IDLE = 4096
"""Counts after which those whose periods have passed are forgotten."""


class Count(NamedTuple):
    """One thing that is counted, such as the tokens of a key in a day."""

    name: str
    """No other count has it, nor one of another period."""
    period: Period


@dataclass(slots=True)
class _Spent:
    """One count's spending. Times are minutes, counted from 1970."""

    count: Count
    start: int
    end: int
    current: int = 0
    """In this period."""
    previous: int = 0
    """In the period before."""

    @classmethod
    def at(cls, count: Count, minute: int) -> "_Spent":
        start = count.period.start(minute)
        return cls(count, start, count.period.end(start))

    @property
    def slot(self) -> Slot:
        """A peer whose clock is late may still add to it for one more period, an hour at most."""
        before = self.count.period.start(self.start - 1)
        return Slot(self.count.name, before, self.start, self.end + min(60, self.end - self.start))

    def roll(self, minute: int) -> None:
        """Go on to a later period. A clock that is set back a little stays in this one."""
        if self.start <= minute < self.end or 2 * self.start - self.end <= minute < self.start:
            return
        now = _Spent.at(self.count, minute)
        self.previous = self.current if now.start == self.end else 0
        self.current, self.start, self.end = 0, now.start, now.end


class Rates:
    """Counts requests and tokens over the last minute, the day and the month."""

    def __init__(
        self, state: State | None = None, clock: Callable[[], float] = time.time, process: str = ""
    ) -> None:
        """`state`: None if no other process shares the counts. `clock`: seconds since 1970. `process`: a name
        that no other process with this state has."""
        self._state = state
        self._clock = clock
        self._spent: dict[str, _Spent] = {}
        self._many = MAX_IDLE
        """As many counts are no reason to look for idle ones."""
        self._unsaid: Counter[Slot] = Counter()
        """Spent since the last report."""
        self._report = Report(f"rates {process}", 0)
        """The last report."""
        self._said: Counter[Slot] = Counter()
        """The amounts of the present report, until it is known to have arrived."""
        self._saying: asyncio.Task[dict[Slot, tuple[int, int]]] | None = None
        """The call of the state that runs."""
        self._waiting: list[asyncio.Future[None]] = []
        self._changed = asyncio.Event()
        self._answers = state is not None
        """Whether the state has answered the last call."""
        self._logged_at = -LOG_INTERVAL

    def used(self, count: Count) -> float:
        """The spending within the last minute, this day or this month."""
        now = self._clock()
        spent = self._of(count, now)
        if count.period is not Period.MINUTE:
            return spent.current
        return spent.current + spent.previous * (1 - now % MINUTE / MINUTE)

    def spend(self, count: Count, amount: int) -> None:
        """Count an amount; a negative one is subtracted."""
        spent = self._of(count, self._clock())
        spent.current += amount
        if self._state is not None:
            self._unsaid[spent.slot] += amount
            self._changed.set()

    def seconds_until(self, count: Count, most: float) -> float:
        """Seconds after which no more than `most` is spent, if nothing is spent meanwhile."""
        now = self._clock()
        spent = self._of(count, now)
        if count.period is not Period.MINUTE:
            return 0.0 if spent.current <= most else max(0.0, MINUTE * spent.end - now)
        passed = now % MINUTE
        if spent.current <= most:  # the rest of the minute before must become small enough
            over = spent.current + spent.previous - most
            return max(0.0, MINUTE * over / spent.previous - passed) if over > 0 else 0.0
        return MINUTE - passed + MINUTE * (1 - max(0.0, most) / spent.current)

    async def settle(self) -> None:
        """Wait until this process knows the spending of its peers."""
        if self._answers:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            self._changed.set()
            await waiter

    async def run(self) -> None:
        """Report the spending whenever it changes. Runs until it is cancelled."""
        if self._state is None:
            return
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._say(self._state)

    async def aclose(self) -> None:
        """Report what is not reported yet: a restart must not forget it. Raises `StateError`."""
        if self._saying is not None:
            await asyncio.wait([self._saying])
            if self._saying.exception() is None:
                self._said = Counter()
        while self._state is not None and (self._said or self._unsaid):
            await self._next_report(self._state)
            self._said = Counter()

    def _next_report(self, state: State) -> Coroutine[Any, Any, dict[Slot, tuple[int, int]]]:
        """The call that reports what is not reported, or the last report again."""
        if not self._said:
            self._report = self._report._replace(number=self._report.number + 1)
            self._said, self._unsaid = self._unsaid, Counter()
        return state.spend(self._report, int(self._clock() // MINUTE), self._said)

    async def _say(self, state: State) -> None:
        waiting, self._waiting = self._waiting, []
        # A call that runs is not cancelled: nobody would know whether it has counted.
        self._saying = asyncio.get_running_loop().create_task(self._next_report(state))
        try:
            totals = await asyncio.shield(self._saying)
        except Exception as error:  # noqa: BLE001 - whatever happened, no request waits for ever
            self._answers = False
            self._log(error)
            minute = int(self._clock() // MINUTE)
            self._unsaid = Counter({slot: num for slot, num in self._unsaid.items() if slot.until >= minute})
            waiting += self._waiting
            self._waiting = []
        else:
            self._answers = True
            self._said = Counter()
            if self._unsaid:
                self._changed.set()
            for slot, (previous, current) in totals.items():
                spent = self._spent.get(slot.name)
                if spent is not None and spent.start == slot.start:
                    own = self._unsaid[slot]  # spent meanwhile
                    spent.current, spent.previous = current + own, previous
        self._saying = None
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
        if not self._answers:
            await asyncio.sleep(RETRY)
            self._changed.set()

    def _of(self, count: Count, now: float) -> _Spent:
        minute = int(now // MINUTE)
        spent = self._spent.get(count.name)
        if spent is None:
            if len(self._spent) >= self._many:
                self._spent = {name: one for name, one in self._spent.items() if one.end >= minute}
                self._many = max(MAX_IDLE, 2 * len(self._spent))
            spent = self._spent[count.name] = _Spent.at(count, minute)
        spent.roll(minute)
        return spent

    def _log(self, error: Exception) -> None:
        now = time.monotonic()
        if now - self._logged_at >= LOG_INTERVAL:
            self._logged_at = now
            logger.warning("%s: the limits per minute, day and month hold for this process alone", error)
