"""What another core brings: `make bench NAME=workers`.

    python -m benchmarks.workers [--workers 1 2] [--streams 64] [--seconds 5] [--repeats 3]

Streams of a replayed recording, as fast as they come, from `weir serve` with each number of workers in turn.
The client runs on the same machine and only counts events. On a machine with few cores it takes a part of
them, so compare the CPU time of an event as well: of the service, and of the client beside it.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from benchmarks.machine import processor
from engine.protocol import Delta, GenerationRequest, SamplingParams, Usage
from engine.streams.recording import Recording, TimedDelta

WORDS = 2000
"""Events of an answer."""
BODY = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}
PAUSE = 0.02
TICKS = os.sysconf("SC_CLK_TCK")


def record(folder: Path) -> None:
    sampling = SamplingParams(max_tokens=WORDS)
    message = {"role": "user", "content": "Hi"}
    request = GenerationRequest(
        request_id="r", model="m", endpoint="chat", messages=(message,), sampling=sampling
    )
    words = [TimedDelta(0.0, Delta(text=f"word{i} ")) for i in range(WORDS)]
    end = TimedDelta(0.0, Delta(finish_reason="stop", usage=Usage(1, WORDS)))
    Recording(request, (*words, end)).dump(folder / "words.jsonl")


@contextmanager
def serving(folder: Path, workers: int) -> Iterator[tuple[str, int, int]]:
    """Host, port and process of a service."""
    options = ["--engine", "replay", "--recordings", str(folder), "--workers", str(workers), "--port", "0"]
    command = [sys.executable, "-m", "proxy", "serve", "--log-level", "error", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            host, port = process.stdout.readline().split("http://")[1].split("/v1")[0].split(":")
            yield host, int(port), process.pid
        finally:
            process.terminate()


def cpu_seconds(pid: int) -> float:
    """Of a process and its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return (int(fields[11]) + int(fields[12])) / TICKS + sum(cpu_seconds(int(child)) for child in children)


class Stream:
    """Asks for one answer after another, and counts their events."""

    def __init__(
        self, host: str, port: int, fields: Mapping[str, Any] = BODY, headers: Mapping[str, str] | None = None
    ) -> None:
        body = orjson.dumps(fields)
        given = {"Host": host, "Content-Type": "application/json", **(headers or {})}
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        head = f"POST /v1/chat/completions HTTP/1.1\r\n{lines}"
        self._request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        self._socket = socket.create_connection((host, port))
        self._socket.sendall(self._request)
        self._socket.setblocking(False)
        self.num_events: float = 0

    def read(self) -> None:
        try:
            data = self._socket.recv(1 << 20)
        except BlockingIOError:
            return
        self.num_events += self._count(data)
        if data.endswith(b"0\r\n\r\n"):
            self._socket.sendall(self._request)

    def _count(self, data: bytes) -> float:
        return data.count(b"data: ")

    def close(self) -> None:
        self._socket.close()


@dataclass
class Result:
    events_per_second: float
    server: float
    """Microseconds of CPU for an event."""
    client: float


def measure(host: str, port: int, pid: int, num_streams: int, seconds: float) -> Result:
    return measured_streams([Stream(host, port) for _ in range(num_streams)], pid, seconds)


def measured_streams(streams: Sequence[Stream], pid: int, seconds: float) -> Result:
    """Reads for `seconds`, after a second that does not count. Closes the streams. `pid`: the server's."""
    read_for(1.0, streams)
    began = time.perf_counter(), time.process_time(), cpu_seconds(pid), sum(s.num_events for s in streams)
    read_for(seconds, streams)
    ended = time.perf_counter(), time.process_time(), cpu_seconds(pid), sum(s.num_events for s in streams)
    for stream in streams:
        stream.close()
    wall, client, server, events = (after - before for before, after in zip(began, ended, strict=True))
    return Result(events / wall, 1e6 * server / events, 1e6 * client / events)


def read_for(seconds: float, streams: Sequence[Stream]) -> None:
    """Look seldom, so that each look finds much: the client then takes little of the processor."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        time.sleep(PAUSE)
        for stream in streams:
            stream.read()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(processor())
    results: dict[int, list[Result]] = {number: [] for number in options.workers}
    with tempfile.TemporaryDirectory() as name:
        record(Path(name))
        for _ in range(options.repeats):
            for number, measured in results.items():
                with serving(Path(name), number) as service:
                    measured.append(measure(*service, options.streams, options.seconds))
    base = 0.0
    print(f"{options.streams} streams on {os.cpu_count()} cores: medians of {options.repeats}")
    for number, measured in results.items():
        rate, server, client = (
            statistics.median(values)
            for values in zip(*((r.events_per_second, r.server, r.client) for r in measured), strict=True)
        )
        base = base or rate
        print(
            f"  {number} workers: {rate:,.0f} events/s ({rate / base:.2f} times); CPU of an event: "
            f"{server:.1f} µs in the service, {client:.1f} µs in the client"
        )


if __name__ == "__main__":
    main()
