"""Threads for work that takes long, such as tokenizing a long text.

Few of them work at once, and callers take turns. The event loop and short work go on beside them.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from engine.fair_queue import FairSemaphore
from engine.prompt_size import LONG_PROMPT
from engine.protocol import EngineError

T = TypeVar("T")


class LongWork:
    """Runs work on threads: long work on a few of its own, short work on the event loop's."""

    def __init__(self, num_threads: int) -> None:
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix="weir-long-work")
        self._places = FairSemaphore(num_threads)
        self._is_closed = False

    async def run(self, work: Callable[[], T], *, size: int, caller: str) -> T:
        """The result of `work()`, for a prompt of `size` characters. Raises `EngineError` once closed."""
        loop = asyncio.get_running_loop()
        if size < LONG_PROMPT:
            return await loop.run_in_executor(None, work)
        async with self._places.turn(caller):
            if self._is_closed:
                raise EngineError("The engine is shutting down.", status=503)
            return await loop.run_in_executor(self._threads, work)

    def close(self) -> None:
        """Begin nothing more. Work that has begun goes on; nobody waits for it."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
