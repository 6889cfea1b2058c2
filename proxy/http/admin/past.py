"""`GET /admin/live/past`: the main numbers of the last two minutes. The curves of the page begin with them.

Each process notes them once a second, whether or not somebody watches.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from aiohttp import web
from prometheus_client.core import Metric

from proxy.http.admin.live import Samples, by_name, samples_of, sum_of
from proxy.http.admin.wire import listing
from proxy.service.peers import Peers

SECONDS = 120
"""The moments that a process remembers, one a second."""

REMEMBERED = frozenset(
    {"weir_num_requests_running", "weir_num_requests_waiting", "weir_generation_tokens", "weir_requests"}
)
"""The metrics of a moment."""

Moments = dict[int, Samples]
"""By the second, since 1970."""


@dataclass(frozen=True, slots=True)
class AskPast:
    """A question: the moments of another process."""


class Past:
    """The last two minutes of all processes."""

    def __init__(self, collect: Callable[[], Iterable[Metric]], peers: Peers) -> None:
        self._collect = collect
        self._peers = peers
        self._moments: deque[tuple[int, Samples]] = deque(maxlen=SECONDS)
        peers.answers[AskPast] = self._answer

    def note(self, now: float) -> None:
        """Remember this moment. `now`: seconds since 1970."""
        self._moments.append((int(now), samples_of(_some(self._collect()))))

    async def run(self) -> None:
        """Note each second, until it is cancelled."""
        while True:
            now = time.time()
            self.note(now)
            await asyncio.sleep(1.0 - now % 1.0)

    async def moments(self) -> Moments:
        """The sums over all processes, the oldest first: of the seconds that all of them noted."""
        own = dict(self._moments)
        theirs: list[Moments] = await self._peers.ask(AskPast())
        return {
            second: sum_of([samples, *(other[second] for other in theirs)])
            for second, samples in own.items()
            if all(second in other for other in theirs)
        }

    async def _answer(self, _: AskPast) -> Moments:
        return dict(self._moments)


def _some(metrics: Iterable[Metric]) -> Iterable[Metric]:
    """The metrics to remember. What comes after the last of them is not even collected."""
    missing = set(REMEMBERED)
    for metric in metrics:
        if metric.name in missing:
            yield metric
            missing.discard(metric.name)
            if not missing:
                return


PAST = web.AppKey("past", Past)


async def remembering(app: web.Application) -> AsyncIterator[None]:
    """Notes each second while the application runs."""
    noting = asyncio.get_running_loop().create_task(app[PAST].run())
    yield
    noting.cancel()
    with suppress(asyncio.CancelledError):
        await noting


async def past(http: web.Request) -> web.Response:
    """The moments as the events of `/admin/live` have them, the oldest first."""
    moments = await http.config_dict[PAST].moments()
    return listing([{"time": second, "samples": by_name(samples)} for second, samples in moments.items()])
