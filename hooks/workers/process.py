"""A process of the service's own, and the connection between the two: how each end begins and ends.

`Child` is the process as the service sees it. The process calls `main()` of a module with the arguments
`FD PARENT`; there, `inherited` is its end of the connection.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
from collections.abc import Iterable

from hooks.loading.async_call import GRACE
from hooks.workers.messages import Connection

_PR_SET_PDEATHSIG = 1  # prctl(2)

_START = (
    "import importlib, json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "importlib.import_module(sys.argv.pop(1)).main()"
)
"""Runs a module with the service's own `sys.path`. `python -m` would search the working folder first, which
may have a package called `hooks` or `engine`."""

_SECRETS = frozenset(
    f"WEIR_{name}"
    for name in (
        *("API_KEY", "ADMIN_KEY", "UPSTREAM_API_KEY", "UPSTREAM", "STATE", "STORE"),
        *("SSL_KEYFILE_PASSWORD", "MODELS"),
    )
)
"""Variables that such a process does not get. The URLs may have a password. The service reads
these names in lower case, too. `WEIR_RESTORE_KEY` is none of them: the guards that restore run there."""


class Child:
    """One process that the service started."""

    def __init__(self) -> None:
        self.connection: Connection
        self.process: asyncio.subprocess.Process | None = None
        self._ending: asyncio.Task[None] | None = None

    async def spawn(self, module: str, descriptors: Iterable[int] = ()) -> None:
        """Start the process and connect to it. It inherits the file `descriptors`, under the same numbers. If
        this is cancelled or fails, neither is left."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                start = [sys.executable, "-P", "-c", _START, json.dumps(sys.path, default=str), module]
                ends = [str(theirs.fileno()), str(os.getpid())]
                self.process = await asyncio.create_subprocess_exec(
                    *start, *ends, env=_environment(), pass_fds=[theirs.fileno(), *descriptors]
                )
            self.connection = Connection(*await asyncio.open_connection(sock=ours))
            self._ending = asyncio.get_running_loop().create_task(self._hang_up(self.process))
        except BaseException:
            ours.close()
            await self._end()
            raise

    async def stop(self) -> None:
        """Close the connection. Kill the process `GRACE` seconds later, or if this is cancelled."""
        await self.stop_within(GRACE)

    async def stop_within(self, seconds: float) -> None:
        """`stop` with another time."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.connection.close()
                    if self.process is not None:
                        await self.process.wait()
        finally:
            self.connection.abort()
            await self._end()
            if self._ending is not None:
                self._ending.cancel()
                await asyncio.gather(self._ending, return_exceptions=True)

    async def ended(self) -> str:
        """How the process ended, in words, once it is gone."""
        assert self.process is not None
        code = await self.process.wait()
        return f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"

    def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()

    async def _end(self) -> None:
        self.kill()
        if self.process is not None:
            await self.process.wait()

    async def _hang_up(self, process: asyncio.subprocess.Process) -> None:
        """Close the connection after the process: one that it left behind may keep its end open."""
        await process.wait()
        await asyncio.sleep(GRACE)  # time to read its last messages
        self.connection.abort()


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.upper() not in _SECRETS}


async def inherited() -> Connection:
    """The connection to the service, in a process that `Child` started.

    The process ends when the connection closes. It ignores SIGINT, SIGTERM and SIGHUP, which a terminal or a
    supervisor sends to the whole group: the service answers them. A hook may keep the process from noticing
    that the service is gone; on Linux the kernel then kills it.
    """
    descriptor, parent = map(int, sys.argv[1:])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Not SIG_IGN, which a hook's own processes would inherit.
        signal.signal(number, lambda *_: None)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the service was gone already
        os._exit(1)
    os.set_inheritable(descriptor, False)
    return Connection(*await asyncio.open_connection(sock=socket.socket(fileno=descriptor)))
