"""Chooses the kernels and the attention for a device."""

import contextlib
import logging

import torch

from engine.device.attention import KeptAttentionBackend
from engine.device.batch import Batch
from engine.device.kernels.cpu import native_library
from engine.device.kernels.cpu.native_kernels import NativeKernels
from engine.device.kernels.probe import AttentionNeeds, try_backend
from engine.device.kernels.protocol import AttentionShape, Kernels
from engine.device.kernels.torch_kernels import TorchKernels
from engine.device.kv_cache import KVCache
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
    backend = choose_attention(attention, needs)
    if backend is None:
        return TorchKernels(shape)
    from engine.device.kernels.gpu.triton_kernels import TritonKernels

    return TritonKernels(shape, backend)


def choose_attention(name: AttentionBackendName, needs: AttentionNeeds) -> KeptAttentionBackend | None:
    """The attention backend. None: `PagedAttention`. Raises `ValueError` if a named backend does not work."""
    if name == "sdpa" or (name == "auto" and not _is_gpu(needs.device)):
        return None
    try:
        backend = _tried_triton(needs)
        if name != "triton":
            backend = _tried_varlen(needs, backend, is_wanted=name == "varlen")
    except ValueError as error:
        if name != "auto":
            raise ValueError(f"attention_backend {name} does not work here: {error}") from error
        logger.warning("attention is computed by torch's own operators: %s", error)
        return None
    return backend


def _is_gpu(device: torch.device) -> bool:
    return device.type == "cuda"


def _tried_triton(needs: AttentionNeeds) -> KeptAttentionBackend:
    """The kernels in Triton. Raises `ValueError` if they do not work."""
    try:
        from engine.device.kernels.gpu.triton_kernels import TritonAttention
    except ImportError as error:
        raise ValueError(str(error)) from error
    try_backend(TritonAttention, needs)
    return TritonAttention


def _tried_varlen(
    needs: AttentionNeeds, other: KeptAttentionBackend, *, is_wanted: bool
) -> KeptAttentionBackend:
    """torch's `varlen_attn`. If it does not work: `other`, or `ValueError` if `is_wanted`."""
    from engine.device.kernels.gpu.varlen_attention import VarlenAttention, use_flash_attention_3

    def varlen(kv_cache: KVCache, batch: Batch) -> VarlenAttention:
        return VarlenAttention(kv_cache, batch, other(kv_cache, batch))

    with contextlib.ExitStack() as stack:
        try:
            stack.callback(use_flash_attention_3())
            try_backend(varlen, needs)
        except ValueError as error:
            if is_wanted:
                raise
            logger.info("varlen_attn is not used: %s", error)
            return other
        stack.pop_all()  # FlashAttention 3 stays in use
    return varlen
