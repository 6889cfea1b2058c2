"""The pool over fleets that are larger than this machine: `make bench NAME=fleet`.

    python -m benchmarks.fleet [scenario ...] [--requests 30000] [--replicas 64] [--processes 8] [--seed 1]

The pool's own routing, retries and breakers choose among simulated replicas, whose times were measured here
(`--measure` measures them again). For each scenario and each routing:

- first token: seconds that requests wait for their first token;
- at once: requests at a replica, counted each second: the mean, and for the busiest one the mean and the 99th
  percentile;
- worked: seconds that the busiest replica worked in all, as a multiple of the mean;
- cached: the share of prompt tokens that the replica's prefix cache had;
- retries, and the requests that failed or were refused.

`round robin` and `oracle`, which knows all caches, are there to compare with. One seed gives the same
numbers, apart from CPU times.
"""

import argparse
import logging
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from benchmarks.fleet.machine import Machine, measure
from benchmarks.fleet.routings import ROUTINGS
from benchmarks.fleet.server import Server
from benchmarks.fleet.simulation import Fleet, Result, percentile, simulated
from benchmarks.fleet.traffic import HOT
from benchmarks.machine import processor
from engine.protocol import GenerationRequest
from engine.upstream.pool.replica import Replica, attempts
from engine.upstream.pool.routing import LeastOutstanding, PrefixAffinity, Routing

SCENARIOS: dict[str, dict[str, Any]] = {
    "two": {"replicas": 2},
    "few": {"replicas": 16},
    "many": {"replicas": 64},
    "thousand": {"replicas": 1000, "requests": 200_000},
    "busy": {"replicas": 16, "rate": 4.0},
    "hot": {"replicas": 16, "rate": 3.0, "kinds": HOT},
    "failures": {"replicas": 16, "trouble": "failures"},
    "restarts": {"replicas": 16, "trouble": "restarts"},
    "processes": {"replicas": 16, "processes": 16},
}
USUAL = [name for name in SCENARIOS if name != "thousand"]
SIZES = (2, 8, 64, 256, 1000)
TEXT = "Tell me about the river. " * 40


def report(name: str, fleet: Fleet, routings: Sequence[str]) -> None:
    print(
        f"\n{name}: {fleet.replicas} replicas, {fleet.processes} process(es) before them, {fleet.requests} "
        f"requests, {fleet.rate:g} a second for each replica"
    )
    print(f"{'':12} first token, s        requests at once       worked   cached  retries  failed  CPU s")
    print(f"{'':12}   p50      p99      mean  busiest      p99   max/mean")
    for routing in routings:
        begin = time.process_time()
        print(row(routing, simulated(fleet, routing), time.process_time() - begin), flush=True)


def row(routing: str, result: Result, seconds: float) -> str:
    p50, p99 = (percentile(result.waits, percent) for percent in (50, 99))
    load, most = (sum(values) / max(1, len(values)) for values in (result.loads, result.most))
    worst = percentile(result.most, 99)
    cached = result.cached_blocks / max(1, result.prompt_blocks)
    failed = result.outcomes["failed"] + result.outcomes["refused"]
    return (
        f"{routing:12} {p50:5.3f} {p99:8.3f} {load:9.2f} {most:8.2f} {worst:8.0f} {result.busy:10.2f} "
        f"{cached:8.3f} {result.retries:8} {failed:7} {seconds:6.0f}"
    )


def choices() -> None:
    """What a choice costs. `attempts` is all of it: who serves the model, who is well, and the routing."""
    print("\nCPU us a choice for a prompt of 2 KB (the routing alone, and with the rest of the pool)")
    print(f"{'replicas':12}" + "".join(f"{size:>16}" for size in SIZES))
    routings: dict[str, Routing] = {"affinity": PrefixAffinity(), "least": LeastOutstanding()}
    for name, routing in routings.items():
        print(f"{name:12}" + "".join(f"{choice_cost(routing, size):>16}" for size in SIZES), flush=True)


def choice_cost(routing: Routing, size: int) -> str:
    messages = ({"role": "system", "content": TEXT}, {"role": "user", "content": TEXT})
    request = GenerationRequest(request_id="r", model="m", endpoint="chat", messages=messages)
    server: Any = Server(Machine(), batch=16, queue=64, cache_blocks=16)
    replicas: list[Any] = [Replica(f"replica-{i}", server) for i in range(size)]
    alone = cost(lambda: routing.choose(routing.keys(request), replicas), size)
    whole = cost(lambda: next(attempts(replicas, routing, request, 2)), size)
    return f"{alone:.0f} {whole:7.0f}"


def cost(call: Any, size: int) -> float:
    """Microseconds of the CPU; the smallest of several means, since a busy machine only makes it longer."""
    number = max(20, 4000 // size)
    means = []
    for _ in range(5):
        begin = time.process_time()
        for _ in range(number):
            call()
        means.append((time.process_time() - begin) / number)
    return 1e6 * min(means)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="benchmarks.fleet", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "scenarios", nargs="*", metavar="scenario", help=f"of {', '.join(SCENARIOS)}, choices"
    )
    parser.add_argument("--routings", default="affinity,least,round robin", help=", ".join(ROUTINGS))
    parser.add_argument("--measure", action="store_true", help="measure this machine first, and use that")
    for field in fields(Fleet):
        if field.type in (int, float):
            parser.add_argument(f"--{field.name.replace('_', '-')}", type=field.type)
    options = parser.parse_args()
    print(processor())
    names = options.scenarios or [*USUAL, "choices"]
    if unknown := set(names) - {*SCENARIOS, "choices"}:
        parser.error(f"no scenario is called {', '.join(unknown)}")
    given = {
        field.name: getattr(options, field.name)
        for field in fields(Fleet)
        if getattr(options, field.name, None) is not None
    }
    logging.disable()  # the pool logs each breaker that opens
    fleet = Fleet()
    if options.measure:
        fleet = replace(fleet, machine=measure())
        print(fleet.machine)
    for name in names:
        if name == "choices":
            choices()
        else:
            report(name, replace(fleet, **{**SCENARIOS[name], **given}), options.routings.split(","))


if __name__ == "__main__":
    main()
