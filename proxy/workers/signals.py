"""The signals of `weir serve`, and Ctrl-C in commands that load models.

`weir serve` obeys also while a hook holds the event loop. For each signal, the interpreter's C code writes a
byte to a socket. A thread reads the bytes, so that neither the event loop nor the main thread has to run.
"""

import asyncio
import faulthandler
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import FrameType
from typing import Any, TypeVar

from proxy.telemetry.logs import flush_log

logger = logging.getLogger("weir.proxy")

T = TypeVar("T")

_GIVE_WAY = 0.05
"""Seconds for which the main thread lets the thread of the signals run."""
_MOST_TIMES = 100
"""The most times that the main thread does so before the end of the process has a time limit."""
_LAST = 1.0
"""Seconds between the end of a process that is late, and its end if no Python code can run."""
_GRACE = 0.5
"""Seconds that a command has to end after Ctrl-C. A model may take minutes to load."""


class Signals:
    """Once asked, obeys SIGTERM, SIGINT and SIGHUP. Until then, ignores SIGHUP. For the main thread only."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ending = asyncio.Event()
        self._leave: float | None = None
        self._reload: Callable[[], None] | None = None
        self._is_ending = False
        self._read, self._written = socket.socketpair()
        self._written.setblocking(False)
        signal.set_wakeup_fd(self._written.fileno(), warn_on_full_buffer=False)
        # Under `nohup` the signal is ignored already, without a line in the log.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._give_way)
        threading.Thread(target=self._listen, name="signals", daemon=True).start()

    def obey(self, leave: float, reload: Callable[[], None]) -> asyncio.Event:
        """An event that SIGTERM or SIGINT sets. The process ends `leave` seconds after the signal, whatever
        it does then. A second signal ends it at once. SIGHUP calls `reload` on the event loop."""
        self._leave = leave
        self._reload = reload
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._give_way)
        return self._ending

    def _listen(self) -> None:
        while True:
            # Linux handles the later of two pending signals first. SIGHUP has the lowest number.
            for number in sorted(self._read.recv(64)):
                if number == signal.SIGHUP:
                    self._hang_up()
                elif number in (signal.SIGTERM, signal.SIGINT) and self._leave is not None:
                    self._end(self._leave)

    def _hang_up(self) -> None:
        if self._reload is None or self._is_ending:
            logger.info("SIGHUP is ignored")
        else:
            self._call(self._reload)

    def _end(self, leave: float) -> None:
        if self._is_ending:
            os._exit(1)
        leave_within(leave)
        self._is_ending = True
        self._call(self._ending.set)

    def _give_way(self, number: int, frame: FrameType | None) -> None:
        """Gives up the interpreter's lock. Code such as `re` keeps it, but lets signals be handled."""
        for _ in range(_MOST_TIMES):
            time.sleep(_GIVE_WAY)
            if number == signal.SIGHUP or self._is_ending:
                return

    def _call(self, function: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # a loop that has ended
            self._loop.call_soon_threadsafe(function)


def leave_within(seconds: float, status: int = 0) -> None:
    """End the process after some seconds, whichever thread, task or library keeps it alive."""
    # This ends the process also while other code keeps the interpreter's lock, or while a full pipe blocks
    # the log. For the same reason the traceback goes nowhere.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    faulthandler.dump_traceback_later(seconds + _LAST, exit=True, file=nowhere)
    timer = threading.Timer(seconds, _leave, (status,))
    timer.daemon = True
    timer.start()


def _leave(status: int) -> None:
    logger.warning("not everything ended in time; leaving without it")
    flush_log()
    os._exit(status)


def run_interruptible(work: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, but Ctrl-C ends the process with status 130 even if the work cannot be cancelled."""
    try:
        return asyncio.run(_interruptible(work))
    except KeyboardInterrupt:
        raise SystemExit(130) from None


async def _interruptible(work: Coroutine[Any, Any, T]) -> T:
    cancel = signal.getsignal(signal.SIGINT)  # asyncio's handler, which cancels the work
    if not callable(cancel):  # the signal is ignored
        return await work

    def interrupt(number: int, frame: FrameType | None) -> None:
        os.write(2, b"weir: interrupted\n")
        timer = threading.Timer(_GRACE, os._exit, (130,))
        timer.daemon = True
        timer.start()
        cancel(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        return await work
    finally:
        signal.signal(signal.SIGINT, cancel)
