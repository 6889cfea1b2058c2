"""The usage of this process that is not written yet, by day and by who asked."""

import math
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from typing import NamedTuple

from proxy.storage.records import Account, DayUsage, day_of
from proxy.storage.reports import Report

_DAY = 24 * 60 * 60
"""Seconds of a day of the clock: it has no leap seconds."""


@dataclass(slots=True, eq=False)
class _Sums:
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated_tokens: int = 0


class UsageCounts:
    """Counts each request on the day when it begins, and its tokens on the day when it ends, both of UTC. The
    names of accounts are the configuration's, so they are few."""

    def __init__(self, clock: Callable[[], float], process: str) -> None:
        """`clock`: seconds since 1970. `process`: a name that no other process has."""
        self._clock = clock
        self._day, self._day_begins = "", -math.inf
        """The day of the last count, and when it begins by the clock."""
        self._sums: dict[tuple[str, Account], _Sums] = {}
        self._report = Report(f"usage {process}", 1)
        self._reported: list[DayUsage] = []

    def begin(self, account: Account) -> "Used":
        """Count a request. Its tokens are to be counted in the result."""
        self.today(account).requests += 1
        return Used(self, account)

    def today(self, account: Account) -> _Sums:
        now = self._clock()
        if not self._day_begins <= now < self._day_begins + _DAY:
            self._day, self._day_begins = day_of(now), now // _DAY * _DAY
        sums = self._sums.get((self._day, account))
        if sums is None:
            sums = self._sums[self._day, account] = _Sums()
        return sums

    def reports(self) -> Iterator[tuple[Report, list[DayUsage]]]:
        """The usage to write now: what was reported before and may not have arrived, and what came since.
        Each report has arrived once the next one is asked for."""
        while self._reported or self._sums:
            is_last = not self._reported
            if is_last:
                taken, self._sums = self._sums, {}
                self._reported = [DayUsage(day, who, *astuple(sums)) for (day, who), sums in taken.items()]
            yield self._report, self._reported
            self._report = self._report._replace(number=self._report.number + 1)
            self._reported = []
            if is_last:
                return


class Used(NamedTuple):
    """One request's place in the counts: its tokens are added there."""

    counts: UsageCounts
    account: Account

    def add(self, prompt: int, completion: int, *, is_estimated: bool) -> None:
        sums = self.counts.today(self.account)
        sums.prompt_tokens += prompt
        sums.completion_tokens += completion
        if is_estimated:
            sums.estimated_tokens += prompt + completion
