"""How many threads of the CPU compute a step.

At the end of every operator, its threads wait for the slowest one. This is the thread whose core the service
also uses. For short operators, the wait costs more than a core gains, so a step leaves one core free. For
long operators, the wait hardly matters, and a step uses all cores.
"""

import os
from dataclasses import dataclass

import torch
from transformers import PreTrainedConfig

LONG = 10_000_000
"""Multiply-adds of a matrix that take a core about 100 microseconds."""
READING = 8
"""Multiplying a weight by so many tokens takes about as long as reading the weight."""
_DEFAULT = torch.get_num_threads()
"""torch's own choice, read before any engine changes it: the setting belongs to the process."""


@dataclass(frozen=True, slots=True)
class Threads:
    """The number of threads for short and for long steps."""

    few: int
    all: int
    weights: int
    """The number of weights in one of the model's usual matrices."""

    @classmethod
    def of(cls, num_threads: int | None, text_config: PreTrainedConfig) -> "Threads":
        """`num_threads`: for every step. None: as each step needs, unless `OMP_NUM_THREADS` is set."""
        hidden: int = text_config.hidden_size
        weights = hidden * int(getattr(text_config, "intermediate_size", None) or 4 * hidden)
        if num_threads is None and "OMP_NUM_THREADS" in os.environ:
            num_threads = _DEFAULT
        if num_threads is not None:
            return cls(num_threads, num_threads, weights)
        cores = min(_DEFAULT, _num_cores())
        return cls(max(1, cores - 1), cores, weights)

    def use(self, num_tokens: int) -> None:
        """Set the threads of the calling thread's next operators, for a step of so many tokens."""
        is_long = max(num_tokens, READING) * self.weights >= LONG
        torch.set_num_threads(self.all if is_long else self.few)


def _num_cores() -> int:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):  # on Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
