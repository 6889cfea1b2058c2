"""The cost of a linear probe on two layers, in a step in which streams decode.

An engine with the probe and one without it take turns, step by step. The ratio is the median of the ratios of
neighbours. On a CPU, times are CPU times, which other programs disturb little.
"""

import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.config import EngineConfig
from engine.core.engine_core import EngineCore
from engine.core.input_processor import InputProcessor
from engine.execution.model_runner import ModelRunner
from engine.protocol import GenerationRequest, SamplingParams
from engine.text.tokenizer import LocalTokenizer

STREAMS = (1, 8, 32)
ROUNDS = 200
PROMPT = 64
"""Tokens of each prompt."""


@dataclass(frozen=True)
class ProbeTax:
    num_streams: int
    without: float
    """Seconds of a step without the probe, the median."""
    ratio: float
    """A step with the probe to one without it, the median."""


def probe_tax(model: Path, probe: Path, streams: Sequence[int], dtype: str, threads: int) -> list[ProbeTax]:
    results = []
    for num_streams in streams:
        cores = [_decoding(model, files, num_streams, dtype, threads) for files in ((), (str(probe),))]
        seconds: list[list[float]] = [[], []]
        for i in range(ROUNDS + 2):
            for at in (0, 1) if i % 2 else (1, 0):
                seconds[at].append(_step_seconds(cores[at]))
        pairs = list(zip(*seconds, strict=True))[2:]  # memory and code are touched for the first time
        ratio = statistics.median(probed / plain for plain, probed in pairs)
        results.append(ProbeTax(num_streams, statistics.median(plain for plain, _ in pairs), ratio))
    return results


def _decoding(model: Path, probes: tuple[str, ...], num_streams: int, dtype: str, threads: int) -> EngineCore:
    """An engine in which so many streams decode."""
    config = EngineConfig(
        model=str(model),
        dtype=dtype,  # type: ignore[arg-type]
        num_threads=threads,
        max_num_seqs=num_streams,
        max_model_len=PROMPT + ROUNDS + 16,
        probes=probes,
    )
    tokenizer, runner = LocalTokenizer.load(config.model), ModelRunner.load(config)
    core = EngineCore(runner, tokenizer, config)
    processor = InputProcessor.make(tokenizer, runner, config)
    rng = random.Random(0)
    sampling = SamplingParams(temperature=0.0, max_tokens=ROUNDS + 8, ignore_eos=True)
    for i in range(num_streams):
        prompt = tuple(rng.randrange(2000) for _ in range(PROMPT))
        request = GenerationRequest(
            request_id=str(i), model="m", endpoint="completions", prompts=(prompt,), sampling=sampling
        )
        core.add(processor.process(request))
    while core.scheduler.waiting or any(seq.num_output_tokens < 2 for seq in core.scheduler.running):
        core.step()
    return core


def _step_seconds(core: EngineCore) -> float:
    clock = time.process_time if core.runner.device.type == "cpu" else time.perf_counter
    begin = clock()
    core.step()
    return clock() - begin


def report(results: Sequence[ProbeTax]) -> str:
    lines = ["".join(f"{name:>19}" for name in ("streams", "ms a step", "with a probe"))]
    lines += [f"{one.num_streams:19}{1e3 * one.without:19.2f}{one.ratio:19.3f}" for one in results]
    return "\n".join(lines)
