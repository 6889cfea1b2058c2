"""Chooses the kernels and the attention for a device."""

import logging

import torch

from engine.device.attention import AttentionBackend
from engine.device.kernels.cpu import native_library
from engine.device.kernels.cpu.native_kernels import NativeKernels
from engine.device.kernels.probe import AttentionNeeds, try_backend
from engine.device.kernels.protocol import AttentionShape, Kernels
from engine.device.kernels.torch_kernels import TorchKernels
from engine.protocol.options import AttentionBackendName, CpuKernels

logger = logging.getLogger("weir.engine")


def make_kernels(
    cpu_kernels: CpuKernels, attention: AttentionBackendName, shape: AttentionShape, needs: AttentionNeeds
) -> Kernels:
    """The kernels for a decoder. Raises `ValueError` if the requested ones do not work here."""
    if needs.device.type == "cpu" and cpu_kernels != "torch" and attention == "auto":
        library = native_library.load(needs.dtype) if NativeKernels.can_run(shape) else None
        if library is not None:
            return NativeKernels(library, shape)
        if cpu_kernels == "native":
            raise ValueError(f"there are no kernels in C for {needs.dtype} here")
    elif cpu_kernels == "native":
        raise ValueError(
            "kernels in C need a CPU, and attention_backend auto: they have attention of their own"
        )
    if choose_attention(attention, needs) is None:
        return TorchKernels(shape)
    from engine.device.kernels.gpu.triton_kernels import TritonKernels

    return TritonKernels(shape)


def choose_attention(name: AttentionBackendName, needs: AttentionNeeds) -> AttentionBackend | None:
    """The attention backend. None: `PagedAttention`. Raises `ValueError` if a named backend does not work."""
    if name == "sdpa" or (name == "auto" and not _is_gpu(needs.device)):
        return None
    try:
        return _tried_triton(needs)
    except ValueError as error:
        if name != "auto":
            raise ValueError(f"attention_backend {name} does not work here: {error}") from error
        logger.warning("attention is computed by torch's own operators: %s", error)
        return None


def _is_gpu(device: torch.device) -> bool:
    return device.type == "cuda"


def _tried_triton(needs: AttentionNeeds) -> AttentionBackend:
    """The kernels in Triton. Raises `ValueError` if they do not work."""
    try:
        from engine.device.kernels.gpu.triton_kernels import TritonAttention
    except ImportError as error:
        raise ValueError(str(error)) from error
    try_backend(TritonAttention, needs)
    return TritonAttention
