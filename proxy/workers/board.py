"""A sign of life and the number of connections of each worker, in memory that all processes of the service
share."""

import asyncio
import mmap
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

NAME = "board"
SIGN_INTERVAL = 0.5
"""Seconds between two signs of life."""


def create_board(folder: Path, num_workers: int) -> None:
    # Zeros are written, so that a full disk raises `OSError` here. Later it would kill the process.
    (folder / NAME).write_bytes(bytes(2 * 4 * num_workers))


class Board:
    """One number of each kind for each worker. A worker's index is its number less 1."""

    def __init__(self, folder: Path) -> None:
        with (folder / NAME).open("r+b") as file:
            numbers = memoryview(mmap.mmap(file.fileno(), 0)).cast("I")
        num_workers = len(numbers) // 2
        self.signs = numbers[:num_workers]
        """Each changes while its worker lives."""
        self.connections = numbers[num_workers:]

    def show_life(self, index: int) -> None:
        self.signs[index] = (self.signs[index] + 1) % 2**32

    @asynccontextmanager
    async def living(self, index: int) -> AsyncIterator[None]:
        """The event loop of this process shows that it lives."""

        async def show() -> None:
            while True:
                self.show_life(index)
                await asyncio.sleep(SIGN_INTERVAL)

        showing = asyncio.get_running_loop().create_task(show())
        try:
            yield
        finally:
            showing.cancel()

    @contextmanager
    def loading(self, index: int) -> Iterator[None]:
        """A thread shows that this process lives: hooks are loaded on the event loop, which waits."""
        is_over = threading.Event()

        def show() -> None:
            while not is_over.wait(SIGN_INTERVAL):
                self.show_life(index)

        threading.Thread(target=show, name="loading", daemon=True).start()
        try:
            yield
        finally:
            is_over.set()
