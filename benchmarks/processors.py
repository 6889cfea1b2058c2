"""What logits processors cost: tokens a second of a batch in which every request has another one.

    python -m benchmarks.processors [--shape 0.5b] [--batch 32] [--tokens 24] [--threads 1]

Against the same batch without, twice, to see what is noise. All take turns within one run; medians, and the
median of the ratios of neighbours. Then what a batch without any pays for looking. Weights are random: what
they say is noise, what they cost is not.
"""

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel

from benchmarks.machine import processor
from benchmarks.random_models import SHAPES, make_model
from engine.core.engine_core import EngineCore
from engine.core.input_processor import InputProcessor
from engine.execution.model_runner import ModelRunner
from engine.protocol import GenerationRequest, SamplingParams
from engine.protocol.options import EngineConfig, LogitsProcessorConfig
from engine.sampling.logits_processors import NamedProcessorSpec
from engine.sampling.logits_processors.run import ProcessorRun
from engine.scheduling.sequence import SequenceGroup
from engine.text.tokenizer import LocalTokenizer

PROMPT = 8
MARKERS = {"start": "<|im_start|>", "end": "<|im_end|>"}


class Warmer:
    """Of the row form."""

    class Params(BaseModel):
        temperature: float = 1.3

    def __init__(self, params: Params) -> None:
        self.temperature = params.temperature

    def __call__(self, input_ids: Any, logits: torch.Tensor) -> None:
        logits.div_(self.temperature)


class Prefers:
    """Of the batch form."""

    def __call__(self, logits: torch.Tensor, params: list[dict[str, Any]]) -> torch.Tensor:
        last = [p["__req__"].output_ids[-1:] or p["__req__"].origin_input_ids[-1:] for p in params]
        return logits.scatter_add(1, torch.tensor(last), logits.new_full((len(last), 1), 2.0))


KINDS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("forced_sequence", {}, {"token_ids": [7, 8, 9]}),
    ("allowed_tokens", {}, {"token_ids": list(range(300, 800))}),
    ("disallowed_tokens", {}, {"token_ids": list(range(300, 1300))}),
    ("bad_words", {}, {"bad_words": ["order", "a secret project", "tea"]}),
    ("thinking_budget", MARKERS, {"thinking_budget": 8}),
    ("no_repeat_ngram", {}, {"ngram_size": 3, "window_size": 200}),
    ("watermark", {"key": "hush"}, {}),
    ("logit_bias", {}, {"logit_bias": {"7": 5.0, "9": -5.0}}),
    ("min_tokens", {}, {"min_tokens": 100}),
    ("warmer", {}, {}),
    ("prefers", {}, {}),
]


def configs(batch: int) -> list[LogitsProcessorConfig]:
    """As many as there are requests, all of names, and so entries, of their own."""
    own = {"warmer": "benchmarks.processors.Warmer", "prefers": "benchmarks.processors.Prefers"}
    kinds = (KINDS[i % len(KINDS)] for i in range(batch))
    return [LogitsProcessorConfig(f"{n}{i}", own.get(n, n), args) for i, (n, args, _) in enumerate(kinds)]


class Engine:
    def __init__(self, folder: Path, batch: int, threads: int) -> None:
        config = EngineConfig(
            model=str(folder),
            max_num_seqs=64,
            kv_cache_memory=2**30,
            num_threads=threads,
            logits_processors=tuple(configs(batch)),
        )
        tokenizer, runner = LocalTokenizer.load(config.model), ModelRunner.load(config)
        self.core = EngineCore(runner, tokenizer, config)
        self.processor = InputProcessor.make(tokenizer, runner, config)
        self.names = [config.name for config in config.logits_processors]

    def add(self, prompt: list[int], max_tokens: int, *processors: NamedProcessorSpec) -> SequenceGroup:
        sampling = SamplingParams(
            temperature=0.0, max_tokens=max_tokens, ignore_eos=True, logits_processors=processors
        )
        names: Any = {"request_id": "r", "model": "m", "endpoint": "completions"}
        request = GenerationRequest(**names, prompts=(tuple(prompt),), sampling=sampling)
        group = self.processor.process(request)
        self.core.add(group)
        return group

    def tokens_per_second(self, prompts: list[list[int]], max_tokens: int, is_different: bool) -> float:
        """While all decode."""
        for i, prompt in enumerate(prompts):
            different = NamedProcessorSpec(self.names[i], KINDS[i % len(KINDS)][2])
            self.add(prompt, max_tokens, *([different] if is_different else []))
        while self.core.scheduler.waiting or any(
            s.num_output_tokens < 1 for s in self.core.scheduler.running
        ):
            self.core.step()
        started, steps = time.perf_counter(), 0
        while len(self.core.scheduler.running) == len(prompts):
            self.core.step()
            steps += 1
        seconds = time.perf_counter() - started
        while self.core.has_work:
            self.core.step()
        return steps * len(prompts) / seconds

    def microseconds_of_looking(self, batch: int) -> float:
        """What a draw of sequences without processors pays for their being possible."""
        logits = torch.zeros(batch, self.processor.vocab_size)
        states = [self.add([5, 6, 7], 1).sequences[0].sampling for _ in range(batch)]
        started, times = time.perf_counter(), 1000
        for _ in range(times):
            run = ProcessorRun(logits, states)
            run.shape(run.mask(logits, states), states)
        return (time.perf_counter() - started) / times * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, default="0.5b")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(processor())
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        make_model(options.shape, "bfloat16", Path(folder))
        engine = Engine(Path(folder), options.batch, options.threads)
        kinds = ("none", "different", "none again")
        rates: dict[str, list[float]] = {kind: [] for kind in kinds}
        for turn in range(options.repeats + 1):
            for kind in kinds if turn % 2 else kinds[::-1]:
                prompts = [[rng.randrange(300, 2000) for _ in range(PROMPT)] for _ in range(options.batch)]
                rate = engine.tokens_per_second(prompts, options.tokens, kind == "different")
                if turn:  # the first warms up
                    rates[kind].append(rate)
        looking = engine.microseconds_of_looking(options.batch)
    print(f"{options.shape}, batch {options.batch}, {options.threads} thread(s): tokens/s, ratio to none")
    for kind, found in rates.items():
        ratio = statistics.median(b / a for a, b in zip(rates["none"], found, strict=True))
        print(f"  {kind:12} {statistics.median(found):9.1f}   {ratio:.3f}")
    print(f"  looking for processors where there are none: {looking:.1f} µs a step")


if __name__ == "__main__":
    main()
