"""What the library costs: `make bench NAME=library`.

The import, in a fresh process: CPU time, the least of five, and its most memory. A piece of 4 characters
through `pii`, `secrets` and `phrases`: CPU time, the least of five rounds, with and without an event loop,
and the guard's driver alone.
"""

import argparse
import asyncio
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence

from benchmarks.guards import PROSE
from benchmarks.machine import processor
from engine.protocol import Delta
from weir import Guards, HookSpec

_IMPORT = "import weir; print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"


def imported() -> tuple[float, float]:
    """Seconds of CPU, and megabytes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    kilobytes = int(subprocess.check_output([sys.executable, "-c", _IMPORT]))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, kilobytes / 1000


def microseconds(work: Callable[[], object], num_pieces: int) -> float:
    began = time.process_time()
    work()
    return (time.process_time() - began) / num_pieces * 1e6


def ways(guards: Guards, pieces: Sequence[str]) -> dict[str, Callable[[], object]]:
    async def later() -> AsyncIterator[str]:
        for piece in pieces:
            yield piece

    async def read() -> None:
        async for _ in guards.stream(later()):
            pass

    def drive() -> None:
        driver = guards.prompt("")._guard
        for piece in pieces:
            driver.feed(Delta(text=piece))

    return {
        "without an event loop": lambda: sum(1 for _ in guards.stream(pieces)),
        "async": lambda: asyncio.run(read()),
        "the driver alone": drive,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pieces", type=int, default=20_000)
    options = parser.parse_args()
    print(processor())
    costs = [imported() for _ in range(6)][1:]
    seconds, megabytes = (min(one) for one in zip(*costs, strict=True))
    print(f"import weir: {seconds:.2f} s, {megabytes:.0f} MB")
    text = PROSE * (4 * options.pieces // len(PROSE) + 1)
    pieces = [text[i : i + 4] for i in range(0, 4 * options.pieces, 4)]
    guards = Guards(["pii", "secrets", HookSpec("phrases", {"phrases": ["project bluebird"]})])
    for name, work in ways(guards, pieces).items():
        print(f"{name}: {min(microseconds(work, len(pieces)) for _ in range(5)):.1f} µs a piece")


if __name__ == "__main__":
    main()
