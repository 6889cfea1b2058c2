"""`make abuse`: every attack of the catalogue against `weir serve`, with a well-behaved client beside it.

Each attack goes on for some windows of time. `/health` is the median, over the windows, of the worst answer
that the client got; a first token is the median of medians. The command exits with 1 if `/health` took more
than 250 ms, if a first token took more than 4 times its time alone and 250 ms, if the client got a 429, a 5xx
or no answer, or if an attacker got what a client must not get.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path

from tools.abuse import measure
from tools.abuse.attack import Attack, Breach
from tools.abuse.catalogue import ATTACKS, CHECKS
from tools.abuse.checks import Check
from tools.abuse.client import well_behaved
from tools.abuse.hostile import send_many
from tools.abuse.server import GOOD_KEY, KEYS, Served, served

MAX_GROWTH = 50_000_000
"""Bytes that hostile requests may leave in the server's memory."""
_COLUMNS = "".join(f"{name:>9}" for name in ("finding", "sent", "/health", "worst", "token", "memory"))
_HEAD = f"{'attack':<36}{_COLUMNS}  verdict"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a finding's number, or a part of an attack's name")
    parser.add_argument("--windows", type=int, default=5, help="windows of an attack")
    parser.add_argument("--window", type=float, default=2.0, help="seconds of a window")
    parser.add_argument(
        "--requests", type=int, default=10_000, help="hostile requests, unless --only is given"
    )
    options = parser.parse_args()
    wanted = [a for a in ATTACKS.values() if _is_wanted(options.only, a.name, a.finding)]
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        num_failed = sum(
            _measure(group, Path(folder), options.windows, options.window) for group in _by_server(wanted)
        )
        num_failed += sum(
            _check(name, run, Path(folder))
            for name, (finding, run) in CHECKS.items()
            if _is_wanted(options.only, name, finding)
        )
        if not options.only:
            num_failed += _send_hostile(Path(folder), options.requests)
    print(f"\n{num_failed} attacks succeed, after {time.monotonic() - started:.0f} s.")
    sys.exit(num_failed > 0)


def _is_wanted(only: str, name: str, finding: str) -> bool:
    return only == finding if only.isdigit() else only in name


def _by_server(attacks: list[Attack]) -> Iterator[list[Attack]]:
    def needs(attack: Attack) -> tuple[object, ...]:
        return attack.options, attack.client_asks_schema, attack.num_files or 0

    for _, group in groupby(sorted(attacks, key=needs), needs):
        yield list(group)


def _measure(attacks: list[Attack], folder: Path, num_windows: int, seconds: float) -> int:
    """Print a line for each attack. Returns the number of those that succeeded."""
    print(f"\nweir serve {' '.join(attacks[0].options)}\n{_HEAD}", flush=True)
    num_failed = 0
    with ExitStack() as stack:
        server: Served | None = None
        for attack in attacks:
            if server is None:
                server = stack.enter_context(
                    served(*attack.options, folder=folder, env=KEYS, num_files=attack.num_files)
                )
                taken = stack.enter_context(
                    well_behaved(server.url, GOOD_KEY, asks_schema=attack.client_asks_schema)
                )
                alone = measure.median_ttft(asyncio.run(measure.windows_of(taken, num_windows, 1.0)))
                print(f"{'(alone)':<72}{_ms(alone)}", flush=True)
            result = asyncio.run(
                measure.measured(attack, server, taken, num_windows=num_windows, seconds=seconds)
            )
            errors = result.errors(alone)
            print(_line(result, errors), flush=True)
            num_failed += bool(errors)
            if not result.is_calm:
                stack.close()
                server = None
    return num_failed


def _check(name: str, run: Check, folder: Path) -> int:
    """Returns 1 if the attacker got what a client must not get."""
    try:
        asyncio.run(run(folder))
    except* Breach as group:
        print(f"{name:<36}{group.exceptions[0]}", flush=True)
        return_code = 1
    else:
        print(f"{name:<36}held", flush=True)
        return_code = 0
    return return_code


def _send_hostile(folder: Path, num: int) -> int:
    """Send hostile requests to every route. Returns 1 if one of them succeeded."""
    print(f"\n{num:,} hostile requests", flush=True)
    with served("--max-model-len", "64", "--hook", "secrets", folder=folder, env=KEYS) as server:
        try:
            send_many(server.url, num // 10)  # what is made once is made
            memory, descriptors = server.memory, server.num_descriptors
            send_many(server.url, num - num // 10)
        except (AssertionError, OSError) as error:
            print(f"{type(error).__name__}: {error}"[:2000])
            return 1
        grown, more = server.memory - memory, server.num_descriptors - descriptors
        print(f"no error of the server, no hang; {grown / 1e6:+.0f} MB, {more:+} descriptors")
        return int(more > 2 or grown > MAX_GROWTH)


def _line(result: measure.Result, errors: list[str]) -> str:
    times = "".join(map(_ms, (result.health, result.worst_health, result.ttft)))
    verdict = "; ".join(errors) or "held"
    grown = f"{result.grown / 1e6:>+6.0f} MB"
    return f"{result.name:<36}{result.finding:>9}{result.num_sent:>9}{times}{grown}  {verdict}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:>6.0f} ms"


if __name__ == "__main__":
    main()
