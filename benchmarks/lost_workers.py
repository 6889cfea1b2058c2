"""How long lost workers are missed: `make bench NAME=lost_workers`.

    python -m benchmarks.lost_workers [--workers 4] [--lost 3] [--repeats 3]

Of the workers of `weir serve`, some are lost at once: stopped by SIGSTOP, as if they hung, or killed by
SIGKILL, or both in turns. The time is taken until all of them are replaced. Meanwhile a client asks over one
new connection after another. Its slowest answer is shown, and the number of requests that failed.
"""

import argparse
import http.client
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from benchmarks.machine import processor

KINDS: dict[str, Sequence[signal.Signals]] = {
    "stopped": [signal.SIGSTOP],
    "killed": [signal.SIGKILL],
    "stopped or killed": [signal.SIGSTOP, signal.SIGKILL],
}


@dataclass
class Service:
    address: str
    log: Path

    def pids(self) -> dict[str, int]:
        """The latest process of each worker's number."""
        found = re.findall(r"worker (\d+) serves \(process (\d+)\)", self.log.read_text())
        return {number: int(pid) for number, pid in found}


@contextmanager
def serving(folder: Path, num_workers: int) -> Iterator[Service]:
    log = folder / "log"
    options = ["--engine", "echo", "--workers", str(num_workers), "--port", "0", "--no-access-log"]
    command = [sys.executable, "-m", "proxy", "serve", *options]
    with (
        log.open("w") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
    ):
        assert process.stdout
        try:
            yield Service(process.stdout.readline().split("http://")[1].split("/v1")[0], log)
        finally:
            process.terminate()


@dataclass
class Result:
    seconds: float
    slowest: float
    """Seconds of the slowest answer."""
    num_failed: int
    num_asked: int


def measure(service: Service, num_lost: int, signals: Sequence[signal.Signals]) -> Result:
    lost = dict(list(service.pids().items())[:num_lost])
    began = time.perf_counter()
    for pid, number in zip(lost.values(), cycle(signals), strict=False):
        os.kill(pid, number)
    times, num_failed = [], 0
    while any(service.pids()[number] == pid for number, pid in lost.items()):
        asked = time.perf_counter()
        connection = http.client.HTTPConnection(service.address, timeout=60)
        try:
            connection.request("GET", "/v1/models")
            num_failed += connection.getresponse().status != 200
        except OSError:
            num_failed += 1
        finally:
            connection.close()
        times.append(time.perf_counter() - asked)
        time.sleep(0.01)  # the client takes little of the processor
    return Result(time.perf_counter() - began, max(times), num_failed, len(times))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--lost", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(processor())
    print(f"{options.lost} of {options.workers} workers are lost at once; load {os.getloadavg()[0]:.1f}")
    for kind, signals in KINDS.items():
        with tempfile.TemporaryDirectory() as folder, serving(Path(folder), options.workers) as service:
            rounds = [measure(service, options.lost, signals) for _ in range(options.repeats)]
        seconds = [one.seconds for one in rounds]
        print(
            f"  {kind}: all are back after {statistics.median(seconds):.1f} s, {max(seconds):.1f} s at most"
        )
        print(
            f"    {sum(one.num_failed for one in rounds)} of {sum(one.num_asked for one in rounds)} requests "
            f"failed meanwhile; the slowest took {max(one.slowest for one in rounds):.2f} s"
        )


if __name__ == "__main__":
    main()
