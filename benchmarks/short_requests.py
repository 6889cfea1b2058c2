"""What Weir costs before an upstream where requests are short: `make bench NAME=short_requests`.

    python -m benchmarks.short_requests [--step 0] [--requests 500] [--rounds 7] [--cases whole chunks ...]
        [--before DIR]

The cases are a whole answer of a few words, a stream of nine chunks, and whole answers to chats with 20
messages and with 8 tools. A local upstream gives each answer. Weir asks it for a stream even where its client
asked for a whole answer. The upstream writes a stream's chunks together, or one each `--step` milliseconds.

One client sends the requests over one connection, to one process at a time: the relay of `benchmarks.relay`
under asyncio's event loop and under uvloop, Weir without hooks, and Weir with `phrases`, `pii` and `secrets`,
which read prompts or do not. The relay passes requests on unread. A figure is the CPU time of that process
for a request, and a ratio the median over the rounds, each of which measures all processes, in changing
order.

`--before DIR` also measures the code of another checkout, in the same rounds.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import orjson

from benchmarks.machine import processor
from benchmarks.receipts import cost_of_requests
from benchmarks.relay import (
    FAST_RELAY,
    GUARDED,
    PLAIN,
    RELAY,
    Upstream,
    answer_frames,
    guards_file,
    own,
    pieces,
    running,
    serve_upstream,
    weir,
)

LENGTH = 9
"""Chunks of an answer."""
READING = "Weir, prompts read"
_QUESTION = {"role": "user", "content": "Where does the heron stand today?"}
_ANSWER = {"role": "assistant", "content": "It stands in the reeds by the old mill, as it did yesterday."}
_BODY = {"model": "m", "messages": [_QUESTION]}


def _tool(number: int) -> dict[str, Any]:
    place = {"type": "string", "description": "The name of the place."}
    limit = {"type": "integer", "minimum": 1, "description": "How many to list."}
    return {
        "type": "function",
        "function": {
            "name": f"list_birds_{number}",
            "description": "Lists the birds that were seen at a place, the latest first.",
            "parameters": {
                "type": "object",
                "properties": {"place": place, "limit": limit},
                "required": ["place"],
            },
        },
    }


CASES: Mapping[str, dict[str, Any]] = {
    "whole": _BODY,
    "chunks": {**_BODY, "stream": True},
    "messages": {**_BODY, "messages": [*[_QUESTION, _ANSWER] * 9, _ANSWER, _QUESTION]},
    "tools": {**_BODY, "tools": [_tool(number) for number in range(8)]},
}


class ShortUpstream(Upstream):
    """Answers with few words: whole, or in `LENGTH` chunks."""

    _frames = answer_frames("prose", LENGTH)
    _whole = orjson.dumps(
        {
            "id": "chatcmpl-5f0c2f6b6f4f4c7f",
            "object": "chat.completion",
            "created": 1700000000,
            "model": "m",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "".join(pieces("prose")[:LENGTH])},
                    "logprobs": None,
                    "finish_reason": "stop",
                }
            ],
            "usage": {"prompt_tokens": 9, "completion_tokens": LENGTH, "total_tokens": LENGTH + 9},
        }
    )

    def answer(self, body: bytes) -> None:
        if not orjson.loads(body).get("stream"):
            self.write_whole(self._whole)
        elif self._step:
            self.write_stream(self._frames, self._step)
        else:
            self.write_stream([b"".join(self._frames)], 1.0)


@contextmanager
def _checkout(folder: Path) -> Iterator[None]:
    """Processes that start meanwhile run the code of another checkout."""
    here = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(here)


def started(upstream: str, folder: Path, before: Path | None, stack: ExitStack) -> dict[str, tuple[str, int]]:
    """The base URL and the process of everything that is measured."""
    fast = own("--serve-relay", upstream, "--uvloop")
    commands = {RELAY: own("--serve-relay", upstream), FAST_RELAY: fast}
    weirs = {
        PLAIN: weir(upstream),
        GUARDED: weir(upstream, "--config", guards_file(folder)),
        READING: weir(upstream, "--config", guards_file(folder, "reading", prompt="redact")),
    }
    servers = {name: stack.enter_context(running(one)) for name, one in {**commands, **weirs}.items()}
    if before is not None:
        with _checkout(before):
            for name, command in weirs.items():
                servers[f"{name} (before)"] = stack.enter_context(running(command))
    return servers


def measured(
    servers: Mapping[str, tuple[str, int]], fields: Mapping[str, Any], options: argparse.Namespace
) -> dict[str, list[float]]:
    """By server, the microseconds of a request in each round."""
    costs: dict[str, list[float]] = {name: [] for name in servers}
    for number in range(options.rounds):
        for name in [*servers][:: 1 if number % 2 else -1]:
            costs[name].append(cost_of_requests(*servers[name], fields, options.requests))
    return costs


def report(costs: Mapping[str, list[float]]) -> None:
    for name, own_costs in costs.items():
        ratios = [_ratio(own_costs, costs[other]) for other in (RELAY, FAST_RELAY)]
        before = costs.get(f"{name} (before)")
        change = f"{_ratio(own_costs, before):14.3f}" if before else ""
        print(f"  {name:<30}{statistics.median(own_costs):10,.0f}{ratios[0]:14.2f}{ratios[1]:12.2f}{change}")


def _ratio(costs: list[float], others: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(costs, others, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--step", type=float, default=0.0, help="milliseconds between a stream's chunks")
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=[*CASES])
    parser.add_argument("--before", type=Path, metavar="DIR")
    parser.add_argument("--serve-upstream", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_upstream is not None:
        asyncio.run(serve_upstream(options.serve_upstream, at_once=False, kind=ShortUpstream))
        return
    command = [*own()[:-1], "benchmarks.short_requests", "--serve-upstream", str(options.step)]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        upstream, _ = stack.enter_context(running(command))
        servers = started(upstream, Path(folder), options.before, stack)
        columns = f"{'CPU µs':>10}{'of the relay':>14}{'on uvloop':>12}"
        print(f"{processor()}\n\n{'':<32}{columns}{'of before' if options.before else '':>14}")
        for case in options.cases:
            print(case, flush=True)
            report(measured(servers, CASES[case], options))


if __name__ == "__main__":
    main()
