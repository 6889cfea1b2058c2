"""How long a start takes: `make bench NAME=start`.

    python -m benchmarks.start [--before DIR] [--repeats 5] [--model MODEL] [--install]

For the small model that ships, a server in front of an upstream, and one without a model: the seconds from
`weir serve` to its greeting, which it prints once it is ready, the processor time until then, and the memory
of its processes. The processor time of a server with workers includes their end. `--model` measures a model
of this machine in place of the small one. `--before` measures another checkout's code too, in turns. With
`--install` also the environment of `make serve`, made from nothing: seconds, processor time and size. Starts
are warm: each server has run once before.
"""

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.machine import processor

ROOT = Path(__file__).parents[1]

MODELS = {"the model that ships": (), "the same, --workers 2": ("--workers", "2")}
SERVERS = {
    "--engine openai": ("--engine", "openai", "--upstream", "http://127.0.0.1:9/v1", "--model", "m"),
    "--engine none": ("--engine", "none"),
}


class Cost(NamedTuple):
    seconds: float
    processor_seconds: float
    """Of all cores, user and system."""
    memory: tuple[int, ...]
    """MiB of each process (VmRSS), the first one's first."""


def start(checkout: Path, options: tuple[str, ...]) -> Cost:
    """What a server costs until it says that it is ready. It is killed then, so its end costs nothing."""
    command = [sys.executable, "-m", "proxy", "serve", "--port", "0", *options]
    with tempfile.TemporaryFile() as log:
        begin = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=checkout, env=environment(checkout), stdout=subprocess.PIPE, stderr=log, text=True
        )
        assert process.stdout
        try:
            said = process.stdout.readline()
            seconds = time.perf_counter() - begin
            family = (process.pid, *children_of(process.pid))
            memory = tuple(map(mebibytes_of, family))
        finally:
            process.terminate() if "--workers" in options else process.kill()
            _, _, usage = os.wait4(process.pid, 0)
            process.returncode = -9
            process.stdout.close()
        if " at " not in said:
            log.seek(0)
            raise SystemExit(log.read().decode())
    return Cost(seconds, usage.ru_utime + usage.ru_stime, memory)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def mebibytes_of(pid: int) -> int:
    (kilobytes,) = re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(kilobytes) // 1024


def environment(checkout: Path) -> dict[str, str]:
    """Modules are read compiled, even if the environment says to keep none."""
    return os.environ | {"PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": ""}


def show_starts(checkouts: dict[str, Path], repeats: int, model: str | None) -> None:
    named = () if model is None else ("--engine", "local", "--model", model)
    servers = {name: (*options, *named) for name, options in MODELS.items()} | SERVERS
    for server, options in servers.items():
        costs: dict[str, list[Cost]] = {name: [] for name in checkouts}
        for turn in range(repeats + 1):
            for name, checkout in checkouts.items():
                cost = start(checkout, options)
                if turn:
                    costs[name].append(cost)
        for name, measured in costs.items():
            seconds = statistics.median(cost.seconds for cost in measured)
            processor_seconds = statistics.median(cost.processor_seconds for cost in measured)
            memory = ", ".join(map(str, measured[-1].memory))
            print(
                f"{server}{name}: ready after {seconds:.2f} s, {processor_seconds:.2f} s of processor time,"
                f" {memory} MiB"
            )


def show_installation() -> None:
    with tempfile.TemporaryDirectory() as folder:
        venv = Path(folder) / "venv"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.perf_counter()
        subprocess.run(["make", "--silent", f"VENV={venv}", f"{venv}/.engine"], cwd=ROOT, check=True)
        seconds = time.perf_counter() - begin
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        size = int(subprocess.check_output(["du", "-sm", str(venv)]).split()[0])
    print(f"the environment of `make serve`: {seconds:.0f} s, {spent:.0f} s of processor time, {size} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, metavar="DIR", help="another checkout to measure in turns")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--model", help="a model of this machine, in place of the one that ships")
    parser.add_argument("--install", action="store_true", help="make an environment too, which downloads it")
    options = parser.parse_args()
    print(processor())
    checkouts = {"": ROOT} | ({", before": options.before.resolve()} if options.before else {})
    show_starts(checkouts, options.repeats, options.model and str(Path(options.model).resolve()))
    if options.install:
        show_installation()


if __name__ == "__main__":
    main()
