"""Measures the cost of guards that are models. `make bench NAME=guard_models ARGS="flatness --shape small"`

cost: tokens that guards compute over a stream of 2,048, as the engine counts them.
flatness: the time of a judgement after contexts of several lengths.
probe_tax: what a linear probe on two layers adds to a step in which streams decode.
tax: gaps between tokens without a guard, with a probe, and with a stream guard of a tenth of the size.
cascade: what a judge has left to do after a probe of the demo model.
first_text: the time to the first released text, and the tokens that are out unjudged.

Models have random weights: what they say is noise, but its time is that of the real shape.
"""

import argparse
import asyncio
import os
import tempfile
from pathlib import Path

from benchmarks.guard_models import cascade, cost, first_text, flatness, probe_tax, tax
from benchmarks.guard_models.models import TENTHS, make_judge, make_probe, make_stream_guard
from benchmarks.guard_models.setups import guarded
from benchmarks.machine import processor
from benchmarks.random_models import SHAPES, make_model
from engine.protocol.demo import DEMO_PROBE

LENGTH = 2048


async def costs(options: argparse.Namespace, folder: Path) -> str:
    make_stream_guard(TENTHS["tiny"], folder / "stream", 2 * LENGTH)
    make_judge("tiny", options.dtype, folder / "judge")
    counted = [
        await cost.judge_cost(folder / "judge", LENGTH),
        await cost.stream_guard_cost(folder / "stream", LENGTH),
    ]
    return cost.report(counted)


async def flat(options: argparse.Namespace, folder: Path) -> str:
    contexts, windows = ([*map(int, some.split(","))] for some in (options.contexts, options.windows))
    make_stream_guard(SHAPES[options.shape], folder, max(contexts) + 2 * max(windows))
    how = (options.rounds, options.dtype, options.threads)
    results = flatness.flatness(folder, windows, contexts, *how)
    return flatness.report_flatness(options.shape, results)


async def probe_taxes(options: argparse.Namespace, folder: Path) -> str:
    make_model(options.shape, options.dtype, folder)
    probe = folder / "made.safetensors"
    make_probe(folder, options.shape, probe, "model.norm")
    results = probe_tax.probe_tax(folder, probe, probe_tax.STREAMS, options.dtype, options.threads)
    return probe_tax.report(results)


async def taxes(options: argparse.Namespace, folder: Path) -> str:
    lines = [tax.header()]
    how = {"dtype": options.dtype, "num_threads": options.threads}
    ways = {name: tax.WAYS[name] for name in options.guards.split(",")}
    async with guarded(options.shape, folder, ways, **how) as setups:
        for num_streams in map(int, options.streams.split(",")):
            results = await tax.tax(setups, num_streams, options.rounds, options.max_tokens)
            lines.append(tax.report(num_streams, results))
    return "\n".join(lines)


async def first_texts(options: argparse.Namespace, folder: Path) -> str:
    lines = [first_text.header()]
    how = {"dtype": options.dtype, "num_threads": options.threads}
    async with guarded(options.shape, folder, first_text.WAYS, **how) as setups:
        for num_words in map(int, options.prompts.split(",")):
            results = await first_text.first_text(setups, num_words, options.rounds)
            lines.append(first_text.report(num_words, results))
    return "\n".join(lines)


async def cascades(options: argparse.Namespace, folder: Path) -> str:
    found = await cascade.cascade(options.probe, options.harmless, options.unsafe, options.rate)
    return found.report()


FIGURES = {
    "cost": costs,
    "flatness": flat,
    "probe_tax": probe_taxes,
    "tax": taxes,
    "first_text": first_texts,
    "cascade": cascades,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("figure", choices=FIGURES)
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="float32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--streams", default="1,8,32")
    parser.add_argument("--guards", default=",".join(tax.WAYS), help="guards whose tax is measured")
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--contexts", default=flatness.CONTEXTS, help="tokens before a judgement")
    parser.add_argument("--windows", default=flatness.WINDOWS, help="tokens that are judged together")
    parser.add_argument("--prompts", default="64,512", help="words of prompts")
    parser.add_argument("--probe", type=Path, default=DEMO_PROBE, help="a probe of the demo model")
    parser.add_argument("--harmless", type=int, default=1000)
    parser.add_argument("--unsafe", type=int, default=300)
    parser.add_argument("--rate", type=float, default=0.03, help="harmless streams that may be escalated")
    options = parser.parse_args()
    if options.figure in ("tax", "first_text") and options.shape not in TENTHS:
        parser.error(f"{options.figure} has no guard for the shape {options.shape}")
    load, *_ = os.getloadavg()
    print(f"{processor()}; {options.shape}, {options.dtype}, {options.threads} threads; load {load:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        print(asyncio.run(FIGURES[options.figure](options, Path(folder))))


if __name__ == "__main__":
    main()
