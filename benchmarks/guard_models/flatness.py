"""The time of a judgement, after texts of several lengths, for windows of several numbers of tokens.

Its tokens attend to all of the context, so its multiply-adds grow with it, the less the larger the model is.
"""

import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.random_models import SHAPES
from engine.core.classification.core import ClassifierCore, new_text
from engine.execution.model_runner import ModelRunner
from engine.protocol.options import Dtype, EngineConfig
from engine.scheduling.sequence import SequenceGroup
from engine.text.tokenizer import LocalTokenizer

CONTEXTS = "256,1024,4096,8192"
WINDOWS = "16"
"""Tokens that are judged together."""


def multiply_adds(shape: str, num_context: int) -> float:
    """For one token after this context, in all layers."""
    sizes = SHAPES[shape]
    hidden, heads = sizes["hidden_size"], sizes["head_dim"] * sizes["num_attention_heads"]
    kv_heads = sizes["head_dim"] * sizes["num_key_value_heads"]
    matrices = hidden * (2 * heads + 2 * kv_heads + 3 * sizes["intermediate_size"])
    return float(sizes["num_hidden_layers"] * (matrices + 2 * heads * num_context))


@dataclass
class Judgements:
    """Of so many tokens, after texts of one length."""

    window: int
    num_context: int
    from_scratch: float
    """Seconds to judge the whole text once, with nothing in the cache."""
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def flatness(
    model: Path, windows: Sequence[int], contexts: Sequence[int], rounds: int, dtype: Dtype, threads: int
) -> list[Judgements]:
    """The time of a judgement of each window after each context. They take turns."""
    config = EngineConfig(
        model=str(model),
        dtype=dtype,
        num_threads=threads,
        max_num_seqs=len(contexts) + 1,
        enable_prefix_caching=False,
    )
    core = ClassifierCore(ModelRunner.load(config), LocalTokenizer.load(config.model), config)
    rng = random.Random(0)
    texts: dict[int, SequenceGroup] = {}
    from_scratch: dict[int, float] = {}
    for num_context in contexts:
        text = texts[num_context] = new_text(config)
        from_scratch[num_context] = _seconds(core, text, _ids(rng, num_context))
    results = [Judgements(window, n, from_scratch[n]) for window in windows for n in contexts]
    for _ in range(rounds + 1):
        for result in results:
            text = texts[result.num_context]
            result.seconds.append(_seconds(core, text, _ids(rng, result.window)))
            core.truncate(text, result.num_context)
    for result in results:
        del result.seconds[0]  # memory and code are touched for the first time
    return results


def _ids(rng: random.Random, number: int) -> list[int]:
    return [rng.randrange(2000) for _ in range(number)]


def _seconds(core: ClassifierCore, text: SequenceGroup, ids: list[int]) -> float:
    core.feed(text, ids)
    begin = time.perf_counter()
    while core.has_work:
        core.step()
    return time.perf_counter() - begin


def report_flatness(shape: str, results: Sequence[Judgements]) -> str:
    names = ("window", "context", "ms", "times the first", "its multiply-adds", "ms from scratch")
    lines = ["".join(f"{name:>19}" for name in names)]
    for result in results:
        first = next(other for other in results if other.window == result.window)
        arithmetic = multiply_adds(shape, result.num_context) / multiply_adds(shape, first.num_context)
        lines.append(
            f"{result.window:19}{result.num_context:19}{1e3 * result.median:19.2f}"
            f"{result.median / first.median:19.2f}{arithmetic:19.2f}{1e3 * result.from_scratch:19.0f}"
        )
    return "\n".join(lines)
