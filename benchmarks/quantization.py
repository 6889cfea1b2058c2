"""What smaller weights cost and save: perplexity on the model that ships, time and memory on larger shapes.

    python -m benchmarks.quantization [--shape tiny] [--batches 1,4,16] [--threads 1] [--repeats 5]

Perplexity is that of the assistant's words in conversations that the model's trainer draws from another seed.
Times are milliseconds of a decode step and of a prompt's first token; all sides take turns within one
run; medians. Memory is how much the process grows by loading the model.
"""

import argparse
import gc
import math
import re
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from benchmarks.engine import LONG_PROMPT, Generate, milliseconds, report, step_milliseconds, weir
from benchmarks.machine import processor
from benchmarks.random_models import SHAPES, make_model
from engine.core.engine_core import EngineCore
from engine.core.input_processor import InputProcessor
from engine.execution.model_runner import ModelRunner
from engine.protocol import GenerationRequest, SamplingParams
from engine.protocol.options import EngineConfig
from engine.text.tokenizer import LocalTokenizer
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


def perplexity(num_conversations: int, **settings: Any) -> float:
    config = EngineConfig(dtype="bfloat16", enable_prefix_caching=False, **settings)
    tokenizer, runner = LocalTokenizer.load(config.model), ModelRunner.load(config)
    core = EngineCore(runner, tokenizer, config)
    processor = InputProcessor.make(tokenizer, runner, config)
    sampling = SamplingParams(temperature=0.0, max_tokens=1, logprobs=0)
    hf_tokenizer = AutoTokenizer.from_pretrained(config.model)
    losses: list[float] = []
    for talk in islice(conversations(SEED), num_conversations):
        ids, labels = (row[: runner.max_model_len - 1] for row in encode(hf_tokenizer, talk))
        request = GenerationRequest(
            request_id="r",
            model="m",
            endpoint="completions",
            prompts=(tuple(ids),),
            sampling=sampling,
            echo=True,
        )
        group = processor.process(request)
        core.add(group)
        while core.has_work:
            core.step()
        found = group.sequences[0].prompt_logprobs
        losses += [-f.logprob for f, label in zip(found, labels[1:], strict=True) if label != IGNORED]
    return math.exp(sum(losses) / len(losses))


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
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(processor())
    print("perplexity of the model that ships:")
    exact = 0.0
    for name, settings in FORMATS.items() if options.conversations else ():
        found = perplexity(options.conversations, **settings)
        exact = exact or found
        print(f"  {name}: {found:.4f} ({found / exact - 1:+.2%})", flush=True)
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
