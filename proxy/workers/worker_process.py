"""One worker as the supervisor sees it: its process, its messages and its signs of life."""

from collections.abc import Callable
from contextlib import suppress
from itertools import chain

from hooks.workers.process import Child
from proxy.workers.messages import Failed, Ready, Start

LOOK_INTERVAL = 0.5
"""Seconds between two looks at the workers' signs of life."""
MAX_SILENCE = 20
"""Looks in a row without a new sign of a worker, after which it is killed. They are counted, instead of time,
so that a service that is stopped as a whole, or a machine that sleeps, costs no worker."""


class WorkerError(OSError):
    """A worker cannot start, for the reason in the message."""


class WorkerProcess(Child):
    """One worker, seen from the supervisor."""

    def __init__(self, start: Start, take: Callable[[int, object], None]) -> None:
        """`take` gets the worker's number and each message that it sends once it serves."""
        super().__init__()
        self._start = start
        self._take = take
        self._sign: int | None = None
        self.silence = 0
        """Looks in a row without a new sign of life."""

    async def start(self) -> Ready:
        """Start the process, and wait until it accepts connections. Raises `WorkerError`."""
        await self.spawn("proxy.workers.worker", chain.from_iterable(self._start.sockets))
        self.connection.send(self._start)
        try:
            answer, *_ = await self.connection.receive()
        except EOFError:
            answer = Failed(f"worker {self._start.number} {await self.ended()}")
        except BaseException:
            await self.stop_within(0)
            raise
        if isinstance(answer, Failed):
            await self.stop()
            raise WorkerError(answer.reason)
        assert isinstance(answer, Ready)
        return answer

    async def run(self) -> str:
        """Returns how the process ended, once it is gone."""
        with suppress(EOFError):
            while True:
                for message in await self.connection.receive():
                    self._take(self._start.number, message)
        return await self.ended()

    def look(self, sign: int) -> None:
        """Kill the process if its sign of life has not changed for too long. SIGTERM would not end a process
        that is stopped."""
        self.silence = self.silence + 1 if sign == self._sign else 0
        self._sign = sign
        if self.is_silent:
            self.kill()

    @property
    def is_silent(self) -> bool:
        """The process showed no sign of life for so long that it is killed."""
        return self.silence >= MAX_SILENCE

    async def ended(self) -> str:
        how = await super().ended()
        if self.is_silent:
            return f"was silent for {MAX_SILENCE * LOOK_INTERVAL:g} seconds and is killed"
        return how
