"""The usage of this process that is not written yet, by day and by who asked."""

from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from typing import NamedTuple

from proxy.storage.records import Asker, DayUsage, day_of


@dataclass(slots=True, eq=False)
class _Sums:
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated_tokens: int = 0


class UsageCounts:
    """Counts each request on the day when it begins, and its tokens on the day when it ends, both of UTC. The
    names of askers are the configuration's, so they are few."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: seconds since 1970."""
        self._clock = clock
        self._sums: dict[tuple[str, Asker], _Sums] = {}

    def begin(self, asker: Asker) -> "Used":
        """Count a request. Its tokens are to be counted in the result."""
        self.today(asker).requests += 1
        return Used(self, asker)

    def today(self, asker: Asker) -> _Sums:
        return self._of(day_of(self._clock()), asker)

    def take(self) -> list[DayUsage]:
        """The usage since the last time."""
        taken, self._sums = self._sums, {}
        return [DayUsage(day, asker, *astuple(sums)) for (day, asker), sums in taken.items()]

    def give_back(self, taken: Iterable[DayUsage]) -> None:
        """Say that this was not written. The next `take` returns it again."""
        for day, asker, requests, prompt, completion, estimated in taken:
            sums = self._of(day, asker)
            sums.requests += requests
            sums.prompt_tokens += prompt
            sums.completion_tokens += completion
            sums.estimated_tokens += estimated

    def _of(self, day: str, asker: Asker) -> _Sums:
        sums = self._sums.get((day, asker))
        if sums is None:
            sums = self._sums[day, asker] = _Sums()
        return sums


class Used(NamedTuple):
    """Where one request's tokens are counted."""

    counts: UsageCounts
    asker: Asker

    def add(self, prompt: int, completion: int, *, is_estimated: bool) -> None:
        sums = self.counts.today(self.asker)
        sums.prompt_tokens += prompt
        sums.completion_tokens += completion
        if is_estimated:
            sums.estimated_tokens += prompt + completion
