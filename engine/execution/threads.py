"""How many of the CPU's threads compute a step.

At the end of every operator its threads wait for the slowest, which is the one whose core the service takes
for a moment as well. Where operators are short, that costs more than a core is worth, so one is left free.
Where they are long it is hardly noticed, and all are taken.
"""

import os
from dataclasses import dataclass

import torch
from transformers import PreTrainedConfig

LONG = 10_000_000
"""Multiply-adds of a matrix, about 100 microseconds of a core."""
READING = 8
"""Tokens that take about as long to multiply by a weight as the weight takes to read."""


_DEFAULT = torch.get_num_threads()
"""What torch finds right, before anybody says otherwise: threads are the process's, not an engine's."""


@dataclass(frozen=True, slots=True)
class Threads:
    few: int
    all: int
    weights: int
    """Of one of the model's usual matrices."""

    @classmethod
    def of(cls, num_threads: int | None, text_config: PreTrainedConfig) -> "Threads":
        """`num_threads`: always so many; None: by the step, unless the environment says."""
        hidden: int = text_config.hidden_size
        weights = hidden * int(getattr(text_config, "intermediate_size", None) or 4 * hidden)
        if num_threads is None and "OMP_NUM_THREADS" in os.environ:
            num_threads = _DEFAULT
        if num_threads is not None:
            return cls(num_threads, num_threads, weights)
        cores = min(_DEFAULT, _num_cores())
        return cls(max(1, cores - 1), cores, weights)

    def use(self, num_tokens: int) -> None:
        """Let the operators that the calling thread begins from now on have what a step of so many takes."""
        is_long = max(num_tokens, READING) * self.weights >= LONG
        torch.set_num_threads(self.all if is_long else self.few)


def _num_cores() -> int:
    """That this process may run on."""
    if hasattr(os, "sched_getaffinity"):  # on Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
