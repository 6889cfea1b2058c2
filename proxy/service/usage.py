"""The usage of this process that is not written yet, by day and by who asked."""

from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from typing import NamedTuple

from proxy.storage.records import Account, DayUsage, day_of


@dataclass(slots=True, eq=False)
class _Sums:
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated_tokens: int = 0


class UsageCounts:
    """Counts each request on the day when it begins, and its tokens on the day when it ends, both of UTC. The
    names of accounts are the configuration's, so they are few."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: seconds since 1970."""
        self._clock = clock
        self._sums: dict[tuple[str, Account], _Sums] = {}

    def begin(self, account: Account) -> "Used":
        """Count a request. Its tokens are to be counted in the result."""
        self.today(account).requests += 1
        return Used(self, account)

    def today(self, account: Account) -> _Sums:
        return self._of(day_of(self._clock()), account)

    def take(self) -> list[DayUsage]:
        """The usage since the last time."""
        taken, self._sums = self._sums, {}
        return [DayUsage(day, account, *astuple(sums)) for (day, account), sums in taken.items()]

    def give_back(self, taken: Iterable[DayUsage]) -> None:
        """Say that this was not written. The next `take` returns it again."""
        for day, account, requests, prompt, completion, estimated in taken:
            sums = self._of(day, account)
            sums.requests += requests
            sums.prompt_tokens += prompt
            sums.completion_tokens += completion
            sums.estimated_tokens += estimated

    def _of(self, day: str, account: Account) -> _Sums:
        sums = self._sums.get((day, account))
        if sums is None:
            sums = self._sums[day, account] = _Sums()
        return sums


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
