"""A few threads for work that takes long, such as tokenizing a long text. Callers take turns."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

from engine.protocol import EngineError, ShutdownError
from engine.turns.fair_queue import FairQueue

T = TypeVar("T")


class FairThreads:
    """Runs work on threads. The caller with the fewest threads at work goes first, then by turns.

    A caller that leaves keeps its thread until the work ends, so nobody gets a larger share by leaving early.
    """

    def __init__(self, num_threads: int, *, max_per_caller: int | None = None) -> None:
        """`max_per_caller`: threads that work for one caller at once; None: all of them."""
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix="weir-work")
        self._num_free = num_threads
        self._max_per_caller = max_per_caller or num_threads
        self._working: Counter[str] = Counter()
        """Threads at work, by caller."""
        self._waiting: FairQueue[_Job] = FairQueue()
        self._is_closed = False

    async def run(self, work: Callable[[], T], caller: str) -> T:
        """The result of `work()`. Raises `EngineError` once closed."""
        if self._is_closed:
            raise _closed()
        job = _Job(caller, work, asyncio.get_running_loop().create_future())
        self._waiting.add(caller, job)
        self._begin()
        try:
            result: T = await job.result
        except asyncio.CancelledError:
            self._waiting.remove(caller, job)
            raise
        finally:
            del job  # an error keeps this frame, and the job keeps the error
        return result

    def close(self) -> None:
        """Begin nothing more. Work that has begun continues."""
        self._is_closed = True
        waiting, self._waiting = self._waiting, FairQueue()
        for job in waiting:
            if not job.result.done():
                job.result.set_exception(_closed())
        self._threads.shutdown(wait=False)

    def _begin(self) -> None:
        while self._num_free and (job := self._waiting.first(self._load)) is not None:
            self._waiting.dequeue(job.caller, job)
            self._num_free -= 1
            self._working[job.caller] += 1
            self._threads.submit(job.work).add_done_callback(partial(self._post_end, job))

    def _load(self, caller: str, _: object) -> int | None:
        working = self._working[caller]
        return working if working < self._max_per_caller else None

    def _post_end(self, job: "_Job", done: "Future[Any]") -> None:
        """Called on the thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            job.result.get_loop().call_soon_threadsafe(self._end, job, done)

    def _end(self, job: "_Job", done: "Future[Any]") -> None:
        self._num_free += 1
        self._working[job.caller] -= 1
        if not self._working[job.caller]:
            del self._working[job.caller]
        self._begin()
        if job.result.done():
            return  # the caller has left
        if error := done.exception():
            job.result.set_exception(error)
        else:
            job.result.set_result(done.result())


class _Job(NamedTuple):
    caller: str
    work: Callable[[], Any]
    result: "asyncio.Future[Any]"


def _closed() -> EngineError:
    return ShutdownError()
