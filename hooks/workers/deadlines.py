"""Deadlines of plain calls, in a process that may end: a signal interrupts a call, or the process ends."""

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from hooks.loading.async_call import GRACE
from hooks.loading.loader import LoadedHook


def with_alarm(hook: LoadedHook, seconds: float, ended: Callable[[], None]) -> LoadedHook:
    """The hook, with each plain call interrupted by a `TimeoutError` after `seconds`. `ended` is called after
    each call. Works in the main thread of a process that has `interrupt` as its alarm's handler.

    A call on another thread cannot be interrupted. It ends the process if it continues long after `seconds`.
    """

    def alarmed(call: Callable[..., Any]) -> Callable[..., Any]:
        def within(*arguments: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                return _or_end(call, arguments, seconds + GRACE)
            signal.setitimer(signal.ITIMER_REAL, seconds)
            try:
                return call(*arguments)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                ended()

        return within

    return hook.wrapped(alarmed)


def _or_end(call: Callable[..., Any], arguments: tuple[Any, ...], seconds: float) -> Any:
    """The call's result, if it returns within `seconds`. Else the process ends; the service replaces it."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
    timer.start()
    try:
        return call(*arguments)
    finally:
        timer.cancel()
