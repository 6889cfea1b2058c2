"""Weir's in-process engine and vLLM's server, both serving the same model over HTTP.

    python -m benchmarks.served [--shape tiny] [--concurrency 1,8,32] [--vllm-python .venv-vllm/bin/python]

Chats of about 62 tokens stream 128 tokens each (small: 48). The servers take turns. The ratios are Weir's
figures divided by vLLM's: of tokens a second, more is better, and of times, less.

Weights are random. vLLM needs an environment of its own (`make test-vllm` makes it), gigabytes of memory,
and a minute or two to start.
"""

import argparse
import asyncio
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import aiohttp

from benchmarks.load.turns import Load, compare
from benchmarks.machine import processor
from benchmarks.random_models import SHAPES, make_model
from benchmarks.vllm import Side, ready, running

STREAMS = {"tiny": "1,8,32", "0.5b": "1,4,8", "small": "1,4,8"}
TOKENS = {"tiny": 128, "0.5b": 48, "small": 48}
MAX_MODEL_LEN, MAX_NUM_SEQS = "2048", "32"


def commands(model: Path, vllm_python: str, port: int) -> dict[Side, list[str]]:
    """How to start the two servers."""
    own = ["-m", "proxy", "serve", "--max-model-len", MAX_MODEL_LEN, "--max-num-seqs", MAX_NUM_SEQS]
    peer = ["-m", "vllm.entrypoints.openai.api_server", "--dtype", "bfloat16"]
    peer += ["--max-model-len", MAX_MODEL_LEN, "--max-num-seqs", MAX_NUM_SEQS]

    def command(python: str, arguments: list[str], port: int) -> list[str]:
        return [python, *arguments, "--model", str(model), "--served-model-name", "m", "--port", str(port)]

    return {
        Side("vLLM", f"http://127.0.0.1:{port}", ()): command(vllm_python, peer, port),
        Side("Weir", f"http://127.0.0.1:{port + 1}", ()): command(sys.executable, own, port + 1),
    }


async def all_ready(sides: list[Side]) -> None:
    async with aiohttp.ClientSession() as http:
        await asyncio.gather(*(ready(side, http) for side in sides))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--concurrency")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--vllm-python", default=".venv-vllm/bin/python")
    parser.add_argument("--port", type=int, default=8710, help="the first of two")
    options = parser.parse_args()
    print(processor(), flush=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        make_model(options.shape, "bfloat16", folder / "model")
        sides = commands(folder / "model", options.vllm_python, options.port)
        for side, command in sides.items():
            stack.enter_context(running(command, folder / f"{side.name}.log"))
        asyncio.run(all_ready(list(sides)))
        streams = options.concurrency or STREAMS[options.shape]
        fields = {"model": "m", "max_tokens": TOKENS[options.shape], "temperature": 0, "ignore_eos": True}
        fields |= {"stream": True, "stream_options": {"include_usage": True}}
        load = Load([int(number) for number in streams.split(",")], options.repetitions, fields)
        urls = {side.name: f"{side.url}/v1" for side in sides}
        print("\n".join(asyncio.run(compare(urls, load))))


if __name__ == "__main__":
    main()
