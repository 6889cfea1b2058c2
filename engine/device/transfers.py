"""Copies between the host and the device that the model runs on.

On CUDA, copies go through pinned memory, and the host does not wait for them. On a CPU nothing is copied. The
lines for CUDA have not run on a GPU yet.
"""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from engine.device.layout import Ids


def sent(arrays: Sequence[Ids], device: torch.device) -> list[Tensor]:
    """The arrays on `device`, in one copy."""
    host = torch.empty(sum(a.size for a in arrays), dtype=torch.int64, pin_memory=device.type == "cuda")
    np.concatenate([array.reshape(-1) for array in arrays], out=host.numpy())
    there = host.to(device, non_blocking=True)
    ends = accumulate(array.size for array in arrays)
    return [there[end - a.size : end].view(a.shape) for end, a in zip(ends, arrays, strict=True)]


class Staging:
    """Memory through which numbers go from the host to the device, in one copy. It is kept, and grows.

    On CUDA, two pinned buffers take turns, so that the last copy may still be under way while the host writes
    the next numbers.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._hosts = [torch.empty(0, dtype=torch.int64)] * 2
        self._there = torch.empty(0, dtype=torch.int64)
        self._copied: list[torch.cuda.Event | None] = [None, None]

    def numbers(self, size: int) -> Ids:
        """Room on the host for so many numbers, until `send`."""
        self._hosts.reverse()
        self._copied.reverse()
        if (event := self._copied[0]) is not None:
            event.synchronize()
        is_cuda = self._device.type == "cuda"
        if len(self._hosts[0]) < size:
            self._hosts[0] = torch.empty(2 * size, dtype=torch.int64, pin_memory=is_cuda)
        if is_cuda and len(self._there) < size:
            self._there = torch.empty(2 * size, dtype=torch.int64, device=self._device)
        return self._hosts[0].numpy()[:size]

    def send(self, size: int) -> Tensor:
        """The first of the numbers, on the device. They stay until the next `send`, in the device's order."""
        if self._device.type != "cuda":
            return self._hosts[0][:size]
        there = self._there[:size]
        there.copy_(self._hosts[0][:size], non_blocking=True)
        self._copied[0] = event = torch.cuda.Event()
        event.record()
        return there


def on_device(values: Sequence[object], device: torch.device, dtype: torch.dtype = torch.long) -> Tensor:
    if device.type == "cpu":
        return torch.tensor(values, dtype=dtype)
    host = torch.tensor(values, dtype=dtype, pin_memory=device.type == "cuda")
    return host.to(device, non_blocking=True)


def rows_of(tensor: Tensor, rows: Sequence[int]) -> Tensor:
    """Some rows of the tensor, in order. If they are all rows, nothing is copied."""
    return tensor if len(rows) == len(tensor) else tensor.index_select(0, on_device(rows, tensor.device))


class HostCopy:
    """Tensors of one device on their way to the host, in one copy. It begins at once."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tensors
        self._arrived: torch.cuda.Event | None = None
        if tensors[0].is_cuda:
            there = packed(tensors)
            self._bytes = torch.empty(there.shape, dtype=torch.uint8, pin_memory=True)
            self._bytes.copy_(there, non_blocking=True)
            self._arrived = torch.cuda.Event()
            self._arrived.record()

    def tensors(self) -> Sequence[Tensor]:
        """The tensors on the host. Waits until they are there."""
        if self._arrived is None:
            return self._tensors
        self._arrived.synchronize()
        return unpacked(self._bytes, self._tensors)


def packed(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors' bytes, one tensor after the other, on their device."""
    return torch.cat([t.flatten().view(torch.uint8) for t in tensors])


def unpacked(host: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """The tensors whose bytes `host` has, with the types and shapes of `like`."""
    parts = host.split_with_sizes([t.numel() * t.element_size() for t in like])
    # A part may begin at any byte. Its copy begins where its numbers may be.
    return [part.clone().view(t.dtype).view(t.shape) for part, t in zip(parts, like, strict=True)]
