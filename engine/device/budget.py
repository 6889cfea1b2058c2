"""The share of a device's memory that is left for a model's keys and values. Arithmetic on given numbers.

All models of the process share one budget, and load one after another. Steps of served models take turns, so
the memory in which they compute is that of the largest step. Guard models take turns beside them, in memory
of their own. CUDA graphs keep theirs.

    room = share of the device - what this process holds - the largest step of both - the graphs

The share is `gpu_memory_utilization`. This process counts as the holder of all memory that was free when the
budget was made and is not any more: weights and caches of earlier models, and parts that other programs have
taken meanwhile. `SLACK` of the whole device stays free, however much the other programs hold.
"""

from functools import cache
from typing import NamedTuple

import torch

from engine.device.memory import CudaMemory, DeviceMemory

SLACK = 0.02


class StepMemory(NamedTuple):
    """Bytes that a model takes while it computes."""

    step: int
    """By its largest step."""
    graphs: int = 0
    """By its CUDA graphs, for good."""


class DeviceBudget:
    """Make it before the first model loads."""

    def __init__(self, memory: DeviceMemory) -> None:
        self.memory = memory
        self._free_at_first = memory.free()
        self._largest_steps = {True: 0, False: 0}
        """The bytes of the largest step of guard models (True), and of served models (False)."""

    def room(self, utilization: float, needs: StepMemory, *, only_guards: bool = False) -> int:
        """Bytes for the cache of a model that is loaded and needs this much to compute. `utilization`: the
        share of the whole device that this process may fill. `only_guards`: whether it is a guard model.
        Raises `ValueError` if nothing is left."""
        total, free = self.memory.total, self.memory.free()
        held = self._free_at_first - free
        largest = max(self._largest_steps[only_guards], needs.step)
        step = largest + self._largest_steps[not only_guards]
        room = int(min(utilization * total - held, free - SLACK * total)) - step - needs.graphs
        if room <= 0:
            raise ValueError(
                f"no memory is left for keys and values. Of the GPU's {gib(total)}, this process may fill"
                f" {gib(utilization * total)} (gpu_memory_utilization: {utilization:g}), and {gib(free)} are"
                f" free. Its weights and the models loaded before take {gib(held)}, a step {gib(step)}, CUDA"
                f" graphs {gib(needs.graphs)}. Give the models loaded before less (a smaller"
                " gpu_memory_utilization, or kv_cache_memory), or this model a larger gpu_memory_utilization"
                " or smaller steps (max_num_batched_tokens, max_num_seqs), or end other programs on the GPU."
            )
        self._largest_steps[only_guards] = largest
        return room


@cache
def budget_of(device: torch.device) -> DeviceBudget | None:
    """The process's budget for the device. None: a CPU has none."""
    return None if device.type == "cpu" else DeviceBudget(CudaMemory(device))


def gib(num_bytes: float) -> str:
    return f"{num_bytes / 2**30:.1f} GiB"
