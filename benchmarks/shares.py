"""Work of random draws, shared by several processes."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def in_processes(run: Callable[[int, int], T], number: int, seed: int, num_processes: int) -> list[T]:
    """The outcomes of `run(share, seed)` of so many processes, each with a seed of its own.

    Raises what a run raises.
    """
    share = -(-number // num_processes)
    seeds = [seed * 1000 + i for i in range(num_processes)]
    with ProcessPoolExecutor(num_processes) as pool:
        return list(pool.map(run, [share] * num_processes, seeds))
