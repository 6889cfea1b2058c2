"""Runs a coroutine from plain code, such as a test."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result. It runs in its own thread if a loop runs already, as in an async test."""
    is_looping = False
    with suppress(RuntimeError):
        is_looping = asyncio.get_running_loop().is_running()
    if not is_looping:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()
