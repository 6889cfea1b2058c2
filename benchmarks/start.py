"""How long a start takes: `make bench NAME=start`.

    python -m benchmarks.start [--before DIR] [--repeats 5] [--install]

For the small model that ships, a server in front of an upstream, and one without a model: the seconds from
`weir serve` to its greeting, which it prints once it is ready, and the processor time until then. `--before`
measures another checkout's code too, in turns. With `--install` also the environment of `make serve`, made
from nothing: seconds, processor time and size. Starts are warm: each
server has run once before.
"""

import argparse
import os
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

SERVERS = {
    "the model that ships": (),
    "--engine openai": ("--engine", "openai", "--upstream", "http://127.0.0.1:9/v1", "--model", "m"),
    "--engine none": ("--engine", "none"),
}


class Cost(NamedTuple):
    seconds: float
    processor_seconds: float
    """Of all cores, user and system."""


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
        finally:
            process.kill()
            _, _, usage = os.wait4(process.pid, 0)
            process.returncode = -9
            process.stdout.close()
        if " at " not in said:
            log.seek(0)
            raise SystemExit(log.read().decode())
    return Cost(seconds, usage.ru_utime + usage.ru_stime)


def environment(checkout: Path) -> dict[str, str]:
    """Modules are read compiled, even if the environment says to keep none."""
    return os.environ | {"PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": ""}


def show_starts(checkouts: dict[str, Path], repeats: int) -> None:
    for server, options in SERVERS.items():
        costs: dict[str, list[Cost]] = {name: [] for name in checkouts}
        for turn in range(repeats + 1):
            for name, checkout in checkouts.items():
                cost = start(checkout, options)
                if turn:
                    costs[name].append(cost)
        for name, measured in costs.items():
            seconds, processor_seconds = map(statistics.median, zip(*measured, strict=True))
            print(f"{server}{name}: ready after {seconds:.2f} s, {processor_seconds:.2f} s of processor time")


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
    parser.add_argument("--install", action="store_true", help="make an environment too, which downloads it")
    options = parser.parse_args()
    print(processor())
    checkouts = {"": ROOT} | ({", before": options.before.resolve()} if options.before else {})
    show_starts(checkouts, options.repeats)
    if options.install:
        show_installation()


if __name__ == "__main__":
    main()
