"""Which kernels run on a device."""

import torch

from engine.config import CpuKernels
from engine.kernels import AttentionShape, Kernels, native
from engine.kernels.torch_kernels import TorchKernels


def make_kernels(
    choice: CpuKernels, shape: AttentionShape, dtype: torch.dtype, device: torch.device
) -> Kernels:
    """Raises `ValueError` if those in C were asked for and cannot be had."""
    if device.type == "cpu" and choice != "torch":
        library = native.load(dtype) if native.NativeKernels.can_run(shape) else None
        if library is not None:
            return native.NativeKernels(library, shape)
        if choice == "native":
            raise ValueError(f"there are no kernels in C for {dtype} here")
    return TorchKernels(shape)
