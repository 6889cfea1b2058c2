"""What a step of the in-process engine costs, beside transformers' `generate` on the same weights.

    python -m benchmarks.engine [--shape tiny] [--batches 1,4,16] [--threads 1] [--dtype bfloat16]

Times of one decode step, from the difference between long outputs and short ones, and of the prefill of a
prompt in one step, on a machine where nothing else runs. All take turns within one run; medians. The weights
(`benchmarks.random_models`) are random: what they say is noise, what they cost is not.

The floor is what reading the matrices takes at the bandwidth of as many threads, or what their multiply-adds
take at the speed of a large product, if that is longer. It takes its turn in each round.

A way that would take minutes, as torch's bfloat16 does on some processors, is left out. No round begins after
`--seconds` of a comparison.
"""

import engine.local  # noqa: F401 -- sets how OpenMP waits, as the server does, before torch is loaded

# isort: split
import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from benchmarks.machine import bandwidth, multiply_adds, processor
from benchmarks.random_models import SHAPES, make_model
from engine.core.engine_core import EngineCore
from engine.core.input_processor import InputProcessor
from engine.execution.model_runner import ModelRunner
from engine.protocol import GenerationRequest, SamplingParams
from engine.protocol.options import EngineConfig
from engine.text.tokenizer import LocalTokenizer

PROMPT = 64
SHORT_PROMPT, LONG_PROMPT = 16, 512
SLOW, LONG = 4, 0.25
"""A way is not measured if a short prompt takes so many times as long as by the fastest, and so many seconds:
it would take minutes."""

CACHE = 2**28
"""Bytes for keys and values. The system gives memory at its first use, which takes time of its own: the first
outputs use all of this."""

Generate = Callable[[list[list[int]], int], None]
"""Continues each prompt by so many tokens."""


def weir(folder: Path, **settings: Any) -> Generate:
    config = EngineConfig(model=str(folder), max_num_seqs=64, kv_cache_memory=CACHE, **settings)
    tokenizer, runner = LocalTokenizer.load(config.model), ModelRunner.load(config)
    core = EngineCore(runner, tokenizer, config)
    processor = InputProcessor.make(tokenizer, runner, config)

    def generate(prompts: list[list[int]], max_tokens: int) -> None:
        sampling = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
        for prompt in prompts:
            request = GenerationRequest(
                request_id="r", model="m", endpoint="completions", prompts=(tuple(prompt),), sampling=sampling
            )
            core.add(processor.process(request))
        while core.has_work:
            core.step()

    return generate


def transformers_generate(folder: Path) -> Generate:
    model: Any = AutoModelForCausalLM.from_pretrained(folder)

    def generate(prompts: list[list[int]], max_tokens: int) -> None:
        ids = torch.tensor(prompts)
        options = {"min_new_tokens": max_tokens, "max_new_tokens": max_tokens, "do_sample": False}
        model.generate(ids, attention_mask=torch.ones_like(ids), eos_token_id=None, pad_token_id=0, **options)

    return generate


def random_prompts(number: int, length: int) -> list[list[int]]:
    return [[random.randrange(300, 2000) for _ in range(length)] for _ in range(number)]


def fast_enough(ways: dict[str, Generate]) -> dict[str, Generate]:
    """Those that end in time. Prints the others."""
    for generate in ways.values():
        milliseconds(generate, 1, SHORT_PROMPT, 1)
    took = {name: milliseconds(generate, 1, SHORT_PROMPT, 1) for name, generate in ways.items()}
    limit = max(1e3 * LONG, SLOW * min(took.values()))
    for name in took:
        if took[name] > limit:
            print(
                f"left out: {name}, {took[name] / min(took.values()):.0f} times as slow as the fastest",
                flush=True,
            )
    return {name: generate for name, generate in ways.items() if took[name] <= limit}


def milliseconds(generate: Generate, number: int, length: int, max_tokens: int) -> float:
    """For so many prompts of so many tokens, of which none is in the cache."""
    prompts = random_prompts(number, length)
    begin = time.perf_counter()
    generate(prompts, max_tokens)
    return 1e3 * (time.perf_counter() - begin)


def step_milliseconds(generate: Generate, batch: int, max_tokens: int, length: int = PROMPT) -> float:
    """A decode step: the difference between a long output and a short one."""
    short = milliseconds(generate, batch, length, 1)
    return (milliseconds(generate, batch, length, max_tokens) - short) / (max_tokens - 1)


class Floor:
    """The least time of a step on this machine, measured in each round: the speed of a virtual machine's
    memory and cores changes within seconds."""

    def __init__(self, shape: str, dtype: str, threads: int) -> None:
        sizes: dict[str, int] = SHAPES[shape]
        hidden, head_dim = sizes["hidden_size"], sizes["head_dim"]
        heads, kv_heads = sizes["num_attention_heads"], sizes["num_key_value_heads"]
        attention = hidden * head_dim * (2 * heads + 2 * kv_heads)
        self._layers = sizes["num_hidden_layers"] * (attention + 3 * hidden * sizes["intermediate_size"])
        self._head = hidden * sizes["vocab_size"]
        self._bytes: int = getattr(torch, dtype).itemsize
        self._dtype, self._threads = dtype, threads
        self._bandwidths: list[float] = []
        self._multiply_adds: list[float] = []

    def milliseconds(self, rows: int, logits: int) -> float:
        """Now. `rows`: tokens of the step; `logits`: tokens whose logits are computed."""
        self._bandwidths.append(bandwidth(self._threads))
        self._multiply_adds.append(multiply_adds(self._threads, self._dtype))
        reading = self._bytes * (self._layers + self._head) / self._bandwidths[-1]
        multiplying = (rows * self._layers + logits * self._head) / self._multiply_adds[-1]
        return 1e3 * max(reading, multiplying)

    def __str__(self) -> str:
        reads, products = sorted(self._bandwidths), sorted(self._multiply_adds)
        return (
            f"{reads[0] / 1e9:.1f} to {reads[-1] / 1e9:.1f} GB/s read, {products[0] / 1e9:.0f} to "
            f"{products[-1] / 1e9:.0f} G multiply-adds/s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--batches", default="1,4,16")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30, help="for the rounds of one comparison")
    parser.add_argument("--only", default="", help="the engine to measure (default: all)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        make_model(options.shape, options.dtype, Path(folder))
        own: dict[str, Any] = {"num_threads": options.threads, "max_num_prefill_tokens": LONG_PROMPT}
        ways: dict[str, Callable[[], Generate]] = {
            "transformers generate": lambda: transformers_generate(Path(folder)),
            "weir": lambda: weir(Path(folder), **own),
            "weir, int8": lambda: weir(Path(folder), quantization="int8", **own),
            "weir, torch's operators": lambda: weir(Path(folder), cpu_kernels="torch", **own),
            "weir, transformers' code": lambda: weir(Path(folder), model_impl="transformers", **own),
        }
        engines = fast_enough({name: load() for name, load in ways.items() if options.only in ("", name)})
        floor = Floor(options.shape, options.dtype, options.threads)
        print(processor())
        print(
            f"{options.shape}, {options.dtype}, {options.threads} thread(s): milliseconds a decode step "
            "(x faster than the first; times the floor)"
        )

        def compare(what: str, measure: Callable[[Generate], float], rows: int, logits: int) -> None:
            rounds: list[dict[str, float]] = []
            floors: list[float] = []
            begin = time.perf_counter()
            while len(rounds) < options.repeats and not (
                rounds and time.perf_counter() - begin > options.seconds
            ):
                floors.append(floor.milliseconds(rows, logits))
                rounds.append({name: measure(generate) for name, generate in engines.items()})
            report(what, rounds, floors)

        for batch in map(int, options.batches.split(",")):
            step = partial(step_milliseconds, batch=batch, max_tokens=options.tokens)
            for generate in engines.values():
                generate(random_prompts(batch, PROMPT), options.tokens)
            compare(f"batch {batch}", step, batch, batch)
        prefill = partial(milliseconds, number=1, length=LONG_PROMPT, max_tokens=1)
        compare(f"prefill of {LONG_PROMPT}", prefill, LONG_PROMPT, 1)
        print(f"  the machine: {floor}")


def report(what: str, rounds: list[dict[str, float]], floors: list[float] | None = None) -> None:
    """Milliseconds by engine, and the floor of each round. Ratios are of one round."""
    first = next(iter(rounds[0]))
    row = [f"{what}: floor {statistics.median(floors):.2f}" if floors else f"{what}:"]
    for name in rounds[0]:
        took = statistics.median(times[name] for times in rounds)
        text = f"{name} {took:.2f} ({statistics.median(times[first] / times[name] for times in rounds):.2f}x"
        if floors:
            pairs = zip(rounds, floors, strict=True)
            text += f"; {statistics.median(times[name] / least for times, least in pairs):.2f}"
        row.append(text + ")")
    print("  " + "   ".join(row), flush=True)


if __name__ == "__main__":
    main()
