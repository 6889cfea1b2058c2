"""Each subject's spending within the last minute, in this process and in all that share its state.

The last minute is estimated from two calendar minutes: all spending of this minute, and the share of the
minute before that still lies within 60 seconds. A process reports its own spending, and learns the sums. It
does so in one call for all requests that came since the last call.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from proxy.storage.shared.protocol import State

logger = logging.getLogger("weir.proxy")

MINUTE = 60.0
RETRY = 1.0
"""Seconds between two calls of a state that does not answer. A process's own spending then decides alone."""
LOG_INTERVAL = 60.0
MAX_IDLE = 4096
"""Subjects after which those that spend nothing are forgotten."""


@dataclass(slots=True)
class _Spent:
    """One subject's spending."""

    minute: int
    current: int = 0
    """In this minute."""
    previous: int = 0
    """In the minute before."""

    def roll(self, minute: int) -> None:
        """Go on to a later minute."""
        if minute != self.minute:
            self.previous = self.current if minute == self.minute + 1 else 0
            self.current = 0
            self.minute = minute


class Rates:
    """Counts requests and tokens over the last minute."""

    def __init__(self, state: State | None = None, clock: Callable[[], float] = time.time) -> None:
        """`state`: None if no other process shares the counts. `clock`: seconds since 1970."""
        self._state = state
        self._clock = clock
        self._spent: dict[str, _Spent] = {}
        self._unsaid: Counter[str] = Counter()
        self._waiting: list[asyncio.Future[None]] = []
        self._changed = asyncio.Event()
        self._answers = state is not None
        """Whether the state has answered the last call."""
        self._logged_at = -LOG_INTERVAL

    def used(self, subject: str) -> float:
        """The subject's spending within the last minute."""
        now = self._clock()
        spent = self._of(subject, int(now // MINUTE))
        return spent.current + spent.previous * (1 - now % MINUTE / MINUTE)

    def spend(self, subject: str, amount: int) -> None:
        """Count an amount; a negative one is subtracted."""
        self._of(subject, int(self._clock() // MINUTE)).current += amount
        if self._state is not None:
            self._unsaid[subject] += amount
            self._changed.set()

    def seconds_until(self, subject: str, most: float) -> float:
        """Seconds after which the subject has spent no more than `most`, if it spends nothing meanwhile."""
        now = self._clock()
        spent = self._of(subject, int(now // MINUTE))
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

    async def _say(self, state: State) -> None:
        unsaid, self._unsaid = self._unsaid, Counter()
        waiting, self._waiting = self._waiting, []
        minute = int(self._clock() // MINUTE)
        try:
            totals = await state.spend(minute, unsaid)
        except Exception as error:  # noqa: BLE001 - whatever happened, no request waits for ever
            self._answers = False
            self._log(error)
            self._unsaid.update(unsaid)
            waiting += self._waiting
            self._waiting = []
        else:
            self._answers = True
            for subject, (previous, current) in totals.items():
                own = self._unsaid[subject]  # spent meanwhile
                self._spent[subject] = _Spent(minute, current + own, previous)
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
        if not self._answers:
            await asyncio.sleep(RETRY)
            self._changed.set()

    def _of(self, subject: str, minute: int) -> _Spent:
        spent = self._spent.get(subject)
        if spent is None:
            if len(self._spent) >= MAX_IDLE:
                self._spent = {name: one for name, one in self._spent.items() if one.minute >= minute - 1}
            spent = self._spent[subject] = _Spent(minute)
        spent.roll(minute)
        return spent

    def _log(self, error: Exception) -> None:
        now = time.monotonic()
        if now - self._logged_at >= LOG_INTERVAL:
            self._logged_at = now
            logger.warning("%s: the limits per minute hold for this process alone", error)
