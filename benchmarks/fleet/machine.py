"""The times that a replica takes. Measured here, not guessed."""

import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """Seconds. Weir's own engine, with a model of 19M parameters on one core of an AMD EPYC: the figures of
    docs/engines.md, from `make bench NAME=engine`. `make bench NAME=fleet ARGS=--measure` measures this
    machine."""

    prefill: float = 0.000193
    """A prompt token."""
    step: float = 0.00146
    """A decode step, however many streams it serves."""
    step_per_stream: float = 0.00024
    """A decode step takes so much longer for each stream."""


BATCHES = (1, 16)
PROMPT, LONG_PROMPT, TOKENS = 64, 512, 32


def measure(repeats: int = 7) -> Machine:
    """On one thread. The least time of several, since a busy machine only makes them longer."""
    import torch

    from benchmarks.engine import milliseconds, weir
    from benchmarks.random_models import make_model

    def least(number: int, length: int, tokens: int) -> float:
        """Seconds."""
        return min(milliseconds(generate, number, length, tokens) for _ in range(repeats)) / 1e3

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        make_model("tiny", "bfloat16", Path(folder))
        generate = weir(Path(folder))
        prefill = least(1, LONG_PROMPT, 1) / LONG_PROMPT
        steps = [(least(n, PROMPT, TOKENS) - least(n, PROMPT, 1)) / (TOKENS - 1) for n in BATCHES]
    per_stream = (steps[1] - steps[0]) / (BATCHES[1] - BATCHES[0])
    return Machine(prefill, steps[0] - per_stream, per_stream)
