"""The machine that a benchmark runs on, and its floors: figures of different machines do not compare.

A floor is the time that no program goes below on this machine, with as many threads: bytes that must be read,
by the fastest reading that torch can do here, and multiply-adds, by the fastest large matrix product.
"""

import os
import platform
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

_FEATURES = {"amx_bf16": "AMX", "avx512_bf16": "AVX-512 bf16", "avx512f": "AVX-512", "avx2": "AVX2"}
"""Linux's names and the usual names. The first that a processor has determines how fast its products are."""
_ROUNDS, _ENOUGH = 5, 1.0
"""Most repeats of one measurement, and seconds after which no other begins."""
_SMALL, _LARGE = 256, 2048
"""Rows of the square matrices that are multiplied."""


def processor() -> str:
    """The processor's name, its widest instructions for products, and the cores that this process may use."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text() if cpuinfo.exists() else ""
    name = re.search(r"^model name\s*: (.*)$", lines, re.MULTILINE)
    flags = re.search(r"^flags\s*: (.*)$", lines, re.MULTILINE)
    known = set(flags[1].split()) if flags else set()
    widest = next((human for flag, human in _FEATURES.items() if flag in known), "")
    words = [name[1] if name else platform.processor() or platform.machine(), widest, f"{_num_cores()} cores"]
    return ", ".join(filter(None, words))


def bandwidth(num_threads: int) -> float:
    """Bytes a second that this many threads read from memory."""
    matrix, vector = _in_memory()
    # Which way reads faster depends on the processor.
    ways: list[Callable[[], object]] = [partial(matrix.mv, vector), matrix.sum]
    with _threads(num_threads):
        return float(matrix.nbytes / min(map(_least_seconds, ways)))


@cache
def _in_memory() -> tuple[Any, Any]:
    """A matrix of a gigabyte, which no cache holds, and a vector of the length of its rows."""
    import torch

    return torch.ones(2**16, 4096), torch.ones(4096)


def multiply_adds(num_threads: int, dtype: str = "bfloat16") -> float:
    """Multiply-adds a second that this many threads do in a large product of matrices: of this type, or of
    float32 where that is faster. Without instructions for bfloat16, torch takes a hundred times as long."""
    with _threads(num_threads):
        fastest = min({dtype, "float32"}, key=lambda name: _least_seconds(_product(name, _SMALL)))
        return float(_LARGE**3 / _least_seconds(_product(fastest, _LARGE)))


def _product(dtype: str, size: int) -> Callable[[], object]:
    import torch

    matrix = torch.ones(size, size, dtype=getattr(torch, dtype))
    return partial(torch.matmul, matrix, matrix)


def _least_seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    times: list[float] = []
    while len(times) < _ROUNDS and not (times and time.perf_counter() - begin > _ENOUGH):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


@contextmanager
def _threads(number: int) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _num_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # on Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


if __name__ == "__main__":
    print(processor())
    for number in range(1, _num_cores() + 1):
        speed, products = bandwidth(number) / 1e9, multiply_adds(number) / 1e9
        print(f"{number} threads: {speed:.1f} GB/s read, {products:.0f} G multiply-adds/s")
