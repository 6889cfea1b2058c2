"""Threads that read prompts, so that the event loop goes on meanwhile."""

from collections.abc import Callable
from typing import TypeVar

from engine.protocol.prompt_size import LONG_PROMPT
from engine.turns.fair_threads import FairThreads

T = TypeVar("T")


class PromptThreads:
    """Long prompts and short ones have their own threads, so a short one waits for no long one."""

    def __init__(self, num_threads: int) -> None:
        """`num_threads`: threads for long prompts, and as many for short ones."""
        self._long = FairThreads(num_threads)
        self._short = FairThreads(num_threads)

    async def run(self, work: Callable[[], T], *, size: int, caller: str) -> T:
        """The result of `work()`, for a prompt of `size` characters. Raises `EngineError` once closed."""
        threads = self._short if size < LONG_PROMPT else self._long
        return await threads.run(work, caller)

    def close(self) -> None:
        """Begin nothing more. Work that has begun continues."""
        self._long.close()
        self._short.close()
