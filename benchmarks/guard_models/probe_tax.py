"""The cost of a linear probe on two layers, in a step in which streams decode.

One engine decodes with the probe and without it, in turns of few steps. Times are CPU times, which other
programs disturb little.
"""

import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from engine.core.engine_core import EngineCore
from engine.core.input_processor import InputProcessor
from engine.execution.model_runner import ModelRunner
from engine.execution.scoring import TokenScorer
from engine.protocol import GenerationRequest, SamplingParams
from engine.protocol.options import Dtype, EngineConfig
from engine.scheduling.sequence import SequenceGroup
from engine.text.tokenizer import LocalTokenizer

STREAMS = (1, 8, 32)
ROUNDS = 40
STEPS = 8
"""Steps of a turn that count."""
WARM = 3
"""Steps before them: memory and code are touched for the first time."""
PROMPT = 64
"""Tokens of each prompt."""


@dataclass(frozen=True)
class ProbeTax:
    num_streams: int
    without: float
    """Seconds of a step without the probe, the median."""
    ratio: float
    """A step with the probe to one without it, as medians."""


def probe_tax(model: Path, probe: Path, streams: Sequence[int], dtype: Dtype, threads: int) -> list[ProbeTax]:
    config = EngineConfig(
        model=str(model),
        device="cpu",
        dtype=dtype,
        num_threads=threads,
        max_num_seqs=max(streams),
        max_model_len=PROMPT + STEPS + 16,
        probes=(str(probe),),
    )
    tokenizer, runner = LocalTokenizer.load(config.model), ModelRunner.load(config)
    core = EngineCore(runner, tokenizer, config)
    processor = InputProcessor.make(tokenizer, runner, config)
    return [_tax(core, processor, num_streams) for num_streams in streams]


def _tax(core: EngineCore, processor: InputProcessor, num_streams: int) -> ProbeTax:
    probes = core.runner.probe_heads
    seconds: dict[TokenScorer | None, list[float]] = {None: [], probes: []}
    for i in range(ROUNDS):
        # The probe begins, so that the prompts in the cache have scores.
        for used in (None, probes) if i % 2 else (probes, None):
            core.runner.use_probes(used)
            seconds[used] += _step_seconds(core, processor, num_streams)
    core.runner.use_probes(probes)
    plain, probed = statistics.median(seconds[None]), statistics.median(seconds[probes])
    return ProbeTax(num_streams, plain, probed / plain)


def _step_seconds(core: EngineCore, processor: InputProcessor, num_streams: int) -> list[float]:
    """The steps of a turn in which so many streams decode."""
    groups = [_request(processor, i) for i in range(num_streams)]
    for group in groups:
        core.add(group)
    while core.scheduler.waiting or any(seq.num_output_tokens < WARM for seq in core.scheduler.running):
        core.step()
    times = [time.process_time()]
    for _ in range(STEPS):
        core.step()
        times.append(time.process_time())
    for group in groups:
        core.abort(group)
    return [b - a for a, b in pairwise(times)]


def _request(processor: InputProcessor, number: int) -> SequenceGroup:
    rng = random.Random(number)
    request = GenerationRequest(
        request_id=str(number),
        model="m",
        endpoint="completions",
        prompts=(tuple(rng.randrange(2000) for _ in range(PROMPT)),),
        sampling=SamplingParams(temperature=0.0, max_tokens=STEPS + 2 * WARM, ignore_eos=True),
    )
    return processor.process(request)


def report(results: Sequence[ProbeTax]) -> str:
    lines = ["".join(f"{name:>19}" for name in ("streams", "ms a step", "with a probe"))]
    lines += [f"{one.num_streams:19}{1e3 * one.without:19.2f}{one.ratio:19.3f}" for one in results]
    return "\n".join(lines)
