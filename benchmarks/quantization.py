"""What smaller weights cost and save: perplexity on the model that ships, time and memory on larger shapes.

    python -m benchmarks.quantization [--shape tiny] [--batches 1,4,16] [--threads 1] [--repeats 5]
    python -m benchmarks.quantization --model build/models/smollm2.gguf [--length 512]

Perplexity is that of the assistant's words in conversations that the model's trainer draws from another seed.
With `--model`, it is that of a GGUF file's model on the beginnings of public texts (benchmarks.public_text),
and nothing else is measured: with the file's own weights, with the same weights in bfloat16, and with those
rounded. The matrices of a model that transformers' code runs are rounded in place, and multiply in float32.
Times are milliseconds of a decode step and of a prompt's first token; all sides take turns within one
run; medians. Memory is how much the process grows by loading the model.
"""

import argparse
import gc
import re
import tempfile
from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from benchmarks.engine import LONG_PROMPT, Generate, milliseconds, report, step_milliseconds, weir
from benchmarks.machine import processor
from benchmarks.perplexity import Row, load, load_rounded, perplexity, public_rows, unpack
from benchmarks.random_models import SHAPES, make_model
from engine.protocol.options import EngineConfig
from tools.demo.corpus import conversations
from tools.demo.train import IGNORED, encode

SEED = 20_000
"""Another than the trainer's, so that the conversations are new to the model."""
SHORT_PROMPT = 2
"""Tokens of a prompt before decode steps: longer prompts would weigh more than the steps."""
FORMATS: dict[str, dict[str, Any]] = {
    "bfloat16": {},
    "int8": {"quantization": "int8"},
    "int4, groups of 32": {"quantization": "int4", "quantization_group_size": 32},
    "int4, groups of 128": {"quantization": "int4", "quantization_group_size": 128},
}


def conversation_rows(model: str, number: int) -> list[Row]:
    tokenizer = AutoTokenizer.from_pretrained(model)
    found = [encode(tokenizer, talk) for talk in islice(conversations(SEED), number)]
    return [Row(ids, [label != IGNORED for label in labels]) for ids, labels in found]


def of_the_model_that_ships(num_conversations: int) -> Iterator[tuple[str, float]]:
    model = EngineConfig().model
    rows = conversation_rows(model, num_conversations)
    for name, settings in FORMATS.items() if rows else ():
        yield name, perplexity(model, load(model, **settings), rows)


def of_a_file(
    model: str, length: int, names: Collection[str] = FORMATS.keys()
) -> Iterator[tuple[str, float]]:
    """The perplexity of bfloat16, of the file's own weights, and of those `names` of `FORMATS`."""
    rows = public_rows(model, length)
    with tempfile.TemporaryDirectory() as folder:
        unpack(model, Path(folder))
        yield "bfloat16", perplexity(folder, load(folder), rows)
        yield "the file's own weights", perplexity(model, load(model), rows)
        for name, settings in FORMATS.items():
            if settings and name in names:
                yield name, perplexity(folder, load_rounded(folder, **settings), rows)


def memory() -> int:
    """Bytes of the process that are not a file's."""
    gc.collect()
    found = re.search(r"^RssAnon:\s*(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--batches", default="1,4,16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--conversations", type=int, default=300)
    parser.add_argument("--model", help="a GGUF file, for perplexity alone")
    parser.add_argument("--length", type=int, default=512, help="tokens of each public text")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(processor())
    print(f"perplexity of {options.model or 'the model that ships'}:")
    exact = 0.0
    if options.model:
        measured = of_a_file(options.model, options.length)
    else:
        measured = of_the_model_that_ships(options.conversations)
    for name, found in measured:
        exact = exact or found
        print(f"  {name}: {found:.4f} ({found / exact - 1:+.2%})", flush=True)
    if options.model:
        return
    with tempfile.TemporaryDirectory() as folder:
        make_model(options.shape, "bfloat16", Path(folder))
        engines: dict[str, Generate] = {}
        for name, settings in FORMATS.items():
            before = memory()
            engines[name] = weir(Path(folder), num_threads=options.threads, **settings)
            print(f"{options.shape}, {name}: {(memory() - before) / 1e6:.0f} MB", flush=True)
        print(f"{options.shape}, {options.threads} thread(s): milliseconds a decode step (x faster)")

        def compare(what: str, measure: Callable[[Generate], float]) -> None:
            rounds = [{name: measure(engines[name]) for name in engines} for _ in range(options.repeats + 1)]
            report(what, rounds[1:])

        for batch in map(int, options.batches.split(",")):
            step = partial(step_milliseconds, batch=batch, max_tokens=options.tokens, length=SHORT_PROMPT)
            compare(f"batch {batch}", step)
        prefill = partial(milliseconds, number=1, length=LONG_PROMPT, max_tokens=1)
        compare(f"prefill of {LONG_PROMPT}", prefill)


if __name__ == "__main__":
    main()
