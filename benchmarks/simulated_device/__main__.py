"""Measures what the host costs a GPU: the engine and the service on a simulated device. No GPU is needed.

    python -m benchmarks.simulated_device [--part engine|service] [--seconds 12] [--json]

The device works in order and takes the time of a table (`device.py`). The host waits for it only where it
reads tokens. A device that is not busy waits for the host. Steps that no graph covers cost the host the
launches of their kernels.
"""

import argparse
import json
from typing import Any

import torch

from benchmarks.machine import processor
from benchmarks.simulated_device import engine, service
from proxy.workers import event_loop


def measure_engine(seconds: float) -> dict[str, Any]:
    host = {str(rows): round(engine.host_microseconds(rows), 1) for rows in engine.ROWS}
    loads = {str(load): engine.measure_load(load, seconds).as_json() for load in engine.LOADS}
    return {"loads": loads, "host_us_per_token": host}


def print_engine(figures: dict[str, Any]) -> None:
    print(f"{'load':28} graph %  ahead %   busy %   tokens/s")
    for load, found in figures["loads"].items():
        print(f"{load:28} " + "  ".join(f"{found[k]:7.1f}" for k in ("graph", "ahead", "busy", "tokens")))
    print("the engine's host time, µs a token")
    for rows, microseconds in figures["host_us_per_token"].items():
        print(f"  {rows:>4} rows {microseconds:7.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=("engine", "service"))
    parser.add_argument("--seconds", type=float, default=12.0, help="of each load")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures: dict[str, Any] = {"processor": processor()}
    if options.part != "service":
        figures |= measure_engine(options.seconds)
    if options.part != "engine":
        figures["service"] = event_loop.run(service.measure())
    if options.json:
        print(json.dumps(figures, indent=1))
        return
    print(figures["processor"])
    if "loads" in figures:
        print_engine(figures)
    if "service" in figures:
        service.print_figures(figures["service"])


if __name__ == "__main__":
    main()
