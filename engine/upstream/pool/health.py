"""Asks the replicas of a pool how they are, again and again."""

import asyncio
from collections.abc import Sequence

from engine.protocol import EngineError
from engine.upstream.pool.replica import Replica

TIMEOUT = 5.0
"""Seconds that a replica has to answer."""


class HealthChecks:
    """Checks all replicas every `interval` seconds (None: never). A single replica is checked only while
    something is wrong with it, because requests have no choice."""

    def __init__(self, replicas: Sequence[Replica], interval: float | None) -> None:
        self._replicas = replicas
        self._interval = interval
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._interval is not None:
            self._task = asyncio.get_running_loop().create_task(self._run(self._interval))

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, interval: float) -> None:
        while True:
            is_alone = len(self._replicas) == 1
            due = [one for one in self._replicas if not is_alone or one.problem is not None]
            await asyncio.gather(*map(check, due))
            await asyncio.sleep(interval)


async def check(replica: Replica) -> None:
    """Ask one replica, and keep what it says."""
    try:
        async with asyncio.timeout(TIMEOUT):
            takes_new = await replica.probe()
    except (EngineError, TimeoutError):
        replica.is_unwell()
    else:
        replica.is_well(takes_new=takes_new)
