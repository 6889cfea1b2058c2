"""The kernels in C, for CPUs: compiled at first use where there is a compiler, and kept for later starts.

What is compiled is for this very processor, so it is kept under a name made of the source, the compiler and
what the processor can do.
"""

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from ctypes import c_float, c_int, c_int64, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from engine.execution.batch import Batch
from engine.execution.kernels import AttentionShape
from engine.execution.kv_cache import KVCache

if TYPE_CHECKING:
    from engine.execution.models.decoder import Layer

logger = logging.getLogger("weir.engine")

FOLDER = Path(__file__).parent
SOURCES, HEADER = (FOLDER / "kernels.c", FOLDER / "linear.c"), FOLDER / "vectors.h"
FLAGS = (
    "-O3",
    "-march=native",
    "-mprefer-vector-width=512",
    "-fopenmp",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-signed-zeros",
    "-fassociative-math",
    "-shared",
    "-fPIC",
)
DEFINES = {torch.float32: "-DSCALAR_F32", torch.bfloat16: "-DSCALAR_BF16"}
QUICK = 2**23
"""Elements that are read in at most half a millisecond or so."""
MAX_DIM, MAX_GROUP = 256, 16
"""kernels.c has room for heads of so many elements, and so many query heads to a key head."""


class _Shape(ctypes.Structure):
    _fields_ = (
        *((name, c_int64) for name in ("num_heads", "num_kv_heads", "head_dim", "block_size")),
        ("eps", c_float),
        ("rope", c_void_p),
    )


class _Layer(ctypes.Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("q_norm", "k_norm", "keys", "values")),
        ("window", c_int64),
    )


class _Chunk(ctypes.Structure):
    _fields_ = (("start", c_int64), ("end", c_int64), ("block_table", c_void_p))


class _Step(ctypes.Structure):
    _fields_ = (
        *((name, c_int64) for name in ("num_tokens", "num_singles", "num_chunks", "table_width")),
        *((name, c_void_p) for name in ("positions", "slots", "block_tables", "chunks")),
    )


def address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


@functools.cache
def load(dtype: torch.dtype) -> "Library | None":
    """The kernels for an element type; None, told in the log, where they cannot be had."""
    if dtype not in DEFINES:
        return None
    try:
        return Library(_build(dtype), dtype)
    except (OSError, subprocess.SubprocessError) as error:
        logger.info("no kernels in C, torch's own operators do the work: %s", error)
        return None


class Library:
    """The sources, compiled for one element type. Tensors are contiguous, of that type, on the CPU."""

    def __init__(self, path: Path, dtype: torch.dtype) -> None:
        self.functions = _declared(ctypes.CDLL(str(path)))
        """While these run, other threads of the interpreter do."""
        self._quick_functions = _declared(ctypes.PyDLL(str(path)))
        """While these run, no other does."""
        self.dtype = dtype
        self.pair: int = self._constant("linear_pair")
        """Inputs that a matrix multiplication takes at once: 2 of this type, or 1 in float32."""
        self.is_linear_fast = bool(self._constant("linear_is_fast"))
        self.is_int8_linear_fast = bool(self._constant("int8_linear_is_fast"))
        """Whether it is the fastest there is on this processor."""

    def functions_for(self, num_elements: int) -> ctypes.CDLL:
        """For so many elements to read or write. Where those are few, the interpreter's lock is kept: if the
        event loop took it at every operator, a step would wait for it more often than it computes."""
        return self._quick_functions if num_elements <= QUICK else self.functions

    def _constant(self, name: str) -> int:
        return c_int64.in_dll(self.functions, name).value


def _declared(functions: ctypes.CDLL) -> ctypes.CDLL:
    # An argument's type is told once, or ctypes would take addresses for C's int.
    pointer, size = c_void_p, c_int64
    functions.rms_norm.argtypes = (pointer, pointer, pointer, size, size, c_float)
    functions.silu_and_mul.argtypes = (pointer, pointer, size, size)
    functions.attend.argtypes = (pointer,) * 5
    functions.linear.argtypes = (pointer, pointer, pointer, pointer, size)
    functions.pack.argtypes = (pointer, pointer, size, size, c_int)
    for name in ("rms_norm", "silu_and_mul", "attend", "linear", "pack"):
        getattr(functions, name).restype = None
    functions.packed_bytes.argtypes, functions.packed_bytes.restype = (size, size, c_int), size
    return functions


class NativeKernels:
    """Implements `Kernels` on a CPU."""

    def __init__(self, library: Library, shape: AttentionShape) -> None:
        self.library: Library | None = library
        self.functions_for = library.functions_for
        self.shape = shape
        self._layers: dict[int, _Layer] = {}

    @staticmethod
    def can_run(shape: AttentionShape) -> bool:
        return shape.head_dim <= MAX_DIM and shape.num_heads <= MAX_GROUP * shape.num_kv_heads

    def step(self, batch: Batch, kv_cache: KVCache) -> "NativeStep":
        return NativeStep(self, batch, kv_cache)

    def layer(self, layer: "Layer", kv_cache: KVCache) -> _Layer:
        """What C has to know of it; the cache is the same at every step."""
        known = self._layers.get(layer.index)
        if known is None:
            known = self._layers[layer.index] = _Layer(
                address(layer.q_norm),
                address(layer.k_norm),
                kv_cache.keys[layer.index].data_ptr(),
                kv_cache.values[layer.index].data_ptr(),
                layer.window or 0,
            )
        return known


class NativeStep:
    """Implements `StepKernels`."""

    def __init__(self, kernels: NativeKernels, batch: Batch, kv_cache: KVCache) -> None:
        shape = kernels.shape
        self._kernels = kernels
        self._functions_for = kernels.functions_for
        self._kv_cache = kv_cache
        self._shape = _Shape(
            shape.num_heads,
            shape.num_kv_heads,
            shape.head_dim,
            kv_cache.block_size,
            shape.rms_norm_eps,
            shape.rope_table.data_ptr(),
        )
        self._chunks = (_Chunk * len(batch.chunks))(
            *(_Chunk(c.start, c.end, c.block_table.data_ptr()) for c in batch.chunks)
        )
        self._step = _Step(
            batch.token_ids.shape[0],
            batch.num_singles,
            len(batch.chunks),
            batch.block_tables.shape[1],
            batch.positions.data_ptr(),
            batch.slots.data_ptr(),
            batch.block_tables.data_ptr(),
            ctypes.addressof(self._chunks),
        )
        # At most, and of chunks not known.
        read = batch.block_tables.numel() * kv_cache.block_size * 2 * shape.num_kv_heads * shape.head_dim
        self._attend: Any = kernels.functions_for(QUICK + 1 if batch.chunks else read).attend

    def rms_norm(self, x: Tensor, weight: Tensor) -> Tensor:
        out = torch.empty_like(x)
        rows, dim = x.shape
        eps = self._kernels.shape.rms_norm_eps
        rms_norm = self._functions_for(rows * dim).rms_norm
        rms_norm(out.data_ptr(), x.data_ptr(), weight.data_ptr(), rows, dim, eps)
        return out

    def silu_and_mul(self, gate_up: Tensor) -> Tensor:
        rows, dim = gate_up.shape[0], gate_up.shape[1] // 2
        out = gate_up.new_empty(rows, dim)
        silu_and_mul = self._functions_for(rows * dim).silu_and_mul
        silu_and_mul(out.data_ptr(), gate_up.data_ptr(), rows, dim)
        return out

    def attend(self, layer: "Layer", qkv: Tensor) -> Tensor:
        shape = self._kernels.shape
        out = qkv.new_empty(qkv.shape[0], shape.num_heads * shape.head_dim)
        self._attend(
            ctypes.byref(self._shape),
            ctypes.byref(self._kernels.layer(layer, self._kv_cache)),
            ctypes.byref(self._step),
            qkv.data_ptr(),
            out.data_ptr(),
        )
        return out


def _build(dtype: torch.dtype) -> Path:
    """Compile, unless it was done before. Raises `OSError` or `SubprocessError`."""
    name, *options = shlex.split(os.environ.get("CC", "")) or ["cc"]
    compiler = shutil.which(name)
    if compiler is None:
        raise OSError(f"there is no C compiler {name!r}")
    command = [compiler, *options, *FLAGS, DEFINES[dtype]]
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout
    texts = (path.read_bytes() for path in (HEADER, *SOURCES))
    made_of = [*texts, version, " ".join(command).encode(), _processor()]
    digest = hashlib.sha256(b"\0".join(made_of)).hexdigest()[:24]
    folder = _cache_folder()
    library = folder / f"kernels-{digest}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / "kernels.so"
            command += [*map(str, SOURCES), "-lm", "-o", str(made)]
            subprocess.run(command, capture_output=True, check=True)
            made.replace(library)  # at once, since others may be starting as well
    return library


def _cache_folder() -> Path:
    if cache := os.environ.get("XDG_CACHE_HOME"):
        return Path(cache) / "weir"
    try:
        return Path.home() / ".cache/weir"
    except RuntimeError as error:  # a user that the machine does not know
        raise OSError("there is no folder to keep them in: set XDG_CACHE_HOME") from error


def _processor() -> bytes:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_bytes().splitlines() if cpuinfo.exists() else [platform.processor().encode()]
    return b"\n".join(line for line in lines[:40] if line.startswith((b"flags", b"Features", b"model name")))
