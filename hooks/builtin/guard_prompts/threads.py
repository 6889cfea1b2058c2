"""Tokenizes long texts on a thread, so that other streams continue meanwhile."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_ON_THREAD = 4096
"""More characters are tokenized on a thread."""


async def tokenize(num_characters: int, call: Callable[[], T]) -> T:
    """The result of `call`, which tokenizes so many characters. It may run on another thread."""
    if num_characters <= _ON_THREAD:
        return call()
    return await asyncio.to_thread(call)
