"""Measures what a prompt cache still finds with Weir between: `make bench NAME=prompt_caching`.

    python -m benchmarks.prompt_caching [--sessions 10] [--recording FILE]

Claude Code does tasks against a scripted server, and the bodies that it sends are recorded. They go to an
upstream that has a prompt cache: by themselves, and through Weir with guards. The upstream counts the share
of the input that is in its cache, by whole blocks of 64 characters, and answers with the usage of a cache
that goes by the client's marks.

`of direct` is the share with Weir, divided by the share without. `usage` is the number of answers whose
usage, as the client gets it, is that without Weir. `refused` is the number of requests that Weir answered
with an error.

The recordings are not kept with Weir: they contain the texts of Claude Code. `--recording` keeps them in a
file, and reads them from there the next time.
"""

import argparse
import asyncio
import json
import lzma
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from benchmarks.machine import processor
from benchmarks.prompt_caching.upstream import Upstream, serving
from benchmarks.relay import running
from tests.clients.programs.record import recorded

LEAST = 0.99
"""Of the share without Weir."""
REDACT = {"prompt": "redact"}
RESTORE = {"prompt": "redact", "restore": True}
WEIRS: dict[str, tuple[str, list[Any]]] = {
    "messages, no guards": ("messages", []),
    "messages, pii and secrets": ("messages", ["pii", "secrets"]),
    "messages, prompts redacted": (
        "messages",
        [{"path": "pii", "args": REDACT}, {"path": "secrets", "args": REDACT}],
    ),
    "messages, values restored": (
        "messages",
        [{"path": "pii", "args": RESTORE}, {"path": "secrets", "args": RESTORE}],
    ),
    "chats, prompts redacted": (
        "openai",
        [{"path": "pii", "args": REDACT}, {"path": "secrets", "args": REDACT}],
    ),
}
"""The engine and the hooks of each server."""
Usage = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    share: float
    usages: list[Usage | None]
    """Of each answer, in order. None: the request was refused."""

    def num_equal(self, other: "Result") -> int:
        return sum(
            ours is not None and ours == theirs
            for ours, theirs in zip(self.usages, other.usages, strict=True)
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=10)
    parser.add_argument("--recording", type=Path)
    options = parser.parse_args()
    sessions = _sessions(options.sessions, options.recording)
    print(processor())
    num_requests = sum(map(len, sessions))
    print(f"{len(sessions)} sessions, {num_requests} requests")
    direct = asyncio.run(_replayed(sessions, None, []))
    print(f"{'':28} share  of direct  usage    refused")
    print(f"{'direct':28} {direct.share:.4f}")
    shares = []
    for name, (engine, hooks) in WEIRS.items():
        result = asyncio.run(_replayed(sessions, engine, hooks))
        shares.append(result.share / direct.share)
        usage = f"{result.num_equal(direct)}/{num_requests}" if engine == "messages" else "-"
        num_refused = result.usages.count(None)
        print(f"{name:28} {result.share:.4f} {shares[-1]:.4f}     {usage:8} {num_refused}", flush=True)
    if min(shares) < LEAST:
        sys.exit(f"A share is under {LEAST} of that without Weir.")


def _sessions(number: int, file: Path | None) -> Sequence[Sequence[Any]]:
    if file is not None and file.exists():
        kept: Sequence[Sequence[Any]] = orjson.loads(lzma.decompress(file.read_bytes()))
        return kept
    sessions = list(recorded(number))
    if file is not None:
        file.write_bytes(lzma.compress(orjson.dumps(sessions)))
    return sessions


async def _replayed(sessions: Sequence[Sequence[Any]], engine: str | None, hooks: list[Any]) -> Result:
    upstream = Upstream()
    with serving(upstream.app()) as url, tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        if engine is None:
            usages = await _usages(url, sessions)
            return Result(upstream.prefixes.share, usages)
        json.dump({"hooks": hooks}, config)
        config.flush()
        address = url if engine == "messages" else f"{url}/v1"
        command = [
            sys.executable,
            "-m",
            "proxy",
            "serve",
            "--port",
            "0",
            "--log-level",
            "warning",
            "--engine",
            engine,
        ]
        with running([*command, "--upstream", address, "--config", config.name]) as (weir, _):
            usages = await _usages(weir.removesuffix("/v1"), sessions)
            return Result(upstream.prefixes.share, usages)


async def _usages(url: str, sessions: Sequence[Sequence[Any]]) -> list[Usage | None]:
    async with aiohttp.ClientSession(
        headers={"anthropic-version": "2023-06-01", "x-api-key": "any"}
    ) as client:
        return [await _usage(client, url, body) for session in sessions for body in session]


async def _usage(client: aiohttp.ClientSession, url: str, body: Any) -> Usage | None:
    async with client.post(f"{url}/v1/messages", json=body) as response:
        text = await response.text()
        if response.status != 200:
            return None
    usage: Usage = {}
    for line in text.splitlines():
        if line.startswith("data: "):
            event = orjson.loads(line.removeprefix("data: "))
            usage |= event.get("usage") or event.get("message", {}).get("usage") or {}
    return {name: count for name, count in usage.items() if name.endswith("tokens")}


if __name__ == "__main__":
    main()
