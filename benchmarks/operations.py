"""Measures the cost of operating Weir as a team: `make bench NAME=operations`.

    python -m benchmarks.operations [--streams 64] [--rounds 7] [--before DIR]

The upstream of `benchmarks.relay` streams chats through one process at a time: Weir with one guard and
nothing else in use; and Weir with two models and two policies, keys with limits, the store of decisions,
traces and metrics to a collector, the access log as JSON, and an operator who watches the page's live feed.
The guard redacts a phrase that the answers say. `--before` adds the code of another checkout, with nothing
else in use.

Each process is measured once a round: the CPU time of a chunk, and the chunks that come through. A ratio is
the chunks for a second of CPU time, over those with nothing else in use.
"""

import argparse
import hashlib
import statistics
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from benchmarks.machine import processor
from benchmarks.relay import BODY, ChunkStream, own, running
from benchmarks.workers import Result, measured_streams

PLAIN, IN_USE, BEFORE = "nothing else in use", "all in use", "nothing else in use, before"
KEY, ADMIN_KEY = "a-client-s-key", "an-operator-s-key"
LIMITS = {"requests_per_minute": 1_000_000, "tokens_per_minute": 1_000_000_000, "concurrent_requests": 1000}
HOOKS = [{"path": "phrases", "args": {"phrases": ["a heron stood at the weir"]}}]


class Collector(BaseHTTPRequestHandler):
    """Takes what an OpenTelemetry exporter sends, and counts it."""

    num_exports = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        Collector.num_exports += 1
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        pass


@contextmanager
def collecting() -> Iterator[str]:
    """The URL of a collector."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def watch(base_url: str) -> None:
    """Read the live feed until the server ends, on a thread."""
    live = f"http://{urlsplit(base_url).netloc}/admin/live"
    request = urllib.request.Request(live, headers={"Authorization": f"Bearer {ADMIN_KEY}"})
    response = urllib.request.urlopen(request)
    threading.Thread(target=lambda: [None for _ in response], daemon=True).start()


def settings_in_use(upstream: str, collector: str, folder: Path) -> dict[str, Any]:
    key = {"hash": "sha256:" + hashlib.sha256(KEY.encode()).hexdigest(), "limits": LIMITS}
    return {
        "models": {
            "m": {"engine": "openai", "upstream": [upstream], "policy": "strict"},
            "other": {"engine": "echo", "policy": "lax"},
        },
        "policies": {"strict": {"hooks": HOOKS, "limits": LIMITS}, "lax": {}},
        "keys": {"alice": {**key, "tenant": "acme"}},
        "admin_key": ADMIN_KEY,
        "store": f"sqlite:///{folder}/weir.sqlite",
        "otlp_endpoint": collector,
        "log_format": "json",
    }


def serve(settings: Mapping[str, Any], file: Path, checkout: str) -> list[str]:
    """The command of a server with these settings, and with the code of a checkout."""
    file.write_bytes(orjson.dumps(settings))  # YAML reads JSON
    weir = [sys.executable, "-m", "proxy", "serve", "--port", "0", "--config", str(file)]
    return ["sh", "-c", 'cd "$1"; shift; exec "$@" 2>/dev/null', "weir", checkout, *weir]


def measure(base_url: str, pid: int, options: argparse.Namespace) -> Result:
    parts = urlsplit(base_url)
    assert parts.hostname
    assert parts.port
    headers = {"Authorization": f"Bearer {KEY}"}
    streams = [ChunkStream(parts.hostname, parts.port, BODY, headers) for _ in range(options.streams)]
    return measured_streams(streams, pid, options.seconds)


def report(measured: Mapping[str, list[Result]]) -> None:
    print(f"\n{'':<30}{'CPU µs a chunk':>16}{'chunks/s':>12}{'ratio':>8}")
    for name, results in measured.items():
        cost = statistics.median(result.server for result in results)
        rate = statistics.median(result.events_per_second for result in results)
        pairs = zip(measured[PLAIN], results, strict=True)
        ratio = statistics.median(plain.server / result.server for plain, result in pairs)
        print(f"{name:<30}{cost:16.1f}{rate:12,.0f}{ratio:8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--step", type=float, default=10.0, help="milliseconds between a stream's chunks")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--before", metavar="DIR", help="another checkout")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        upstream, _ = stack.enter_context(running(own("--serve-upstream", str(options.step))))
        plain = {"engine": "openai", "upstream": [upstream], "hooks": HOOKS}
        in_use = settings_in_use(upstream, stack.enter_context(collecting()), folder)
        commands = {
            PLAIN: serve(plain, folder / "plain.json", "."),
            IN_USE: serve(in_use, folder / "in-use.json", "."),
        }
        if options.before:
            commands[BEFORE] = serve(plain, folder / "before.json", options.before)
        started = {name: stack.enter_context(running(command)) for name, command in commands.items()}
        watch(started[IN_USE][0])
        print(f"{processor()}\n{options.streams} streams, a chunk each {options.step:g} ms", flush=True)
        measured: dict[str, list[Result]] = {name: [] for name in started}
        for number in range(options.rounds):
            for name in [*started][:: 1 if number % 2 else -1]:
                measured[name].append(measure(*started[name], options))
        report(measured)
        print(f"The collector was sent to {Collector.num_exports} times.")


if __name__ == "__main__":
    main()
