"""The memory of a device, seen from this process, and of the host."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch

from engine.device import cgroup


class DeviceMemory(Protocol):
    """The memory of one device, in bytes."""

    @property
    def total(self) -> int: ...
    def free(self) -> int:
        """Bytes that no process holds, once torch has given back the memory of freed tensors."""

    def peak_of(self, run: Callable[[], object]) -> int:
        """The most that tensors take while `run` runs, without those that exist before."""


class CudaMemory:
    """Implements `DeviceMemory`. It has not run on a GPU yet. The peak counts other threads' work on the
    device, too."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        _, self.total = torch.cuda.mem_get_info(device)

    def free(self) -> int:
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self._device)[0]

    def peak_of(self, run: Callable[[], object]) -> int:
        torch.cuda.reset_peak_memory_stats(self._device)
        before = torch.cuda.memory_allocated(self._device)
        run()
        torch.cuda.synchronize(self._device)
        return torch.cuda.max_memory_allocated(self._device) - before


def free_host_memory() -> int:
    """The machine's free memory in bytes, within a container's limits. 4 GiB if the system does not say."""
    meminfo = Path("/proc/meminfo")
    lines = meminfo.read_text().splitlines() if meminfo.exists() else []
    available = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    limited = cgroup.free_memory()
    return min([*available, *([] if limited is None else [limited])], default=4 * 2**30)
