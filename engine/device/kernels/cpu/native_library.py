"""Loads the kernels in C: those that a wheel brings, or else those that it compiles at first use and keeps.

The compiler optimizes for the processor at hand. The compiled file's name is therefore a hash of the source,
the compiler and the processor's features.
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
from ctypes import c_char_p, c_float, c_int, c_int64, c_void_p
from pathlib import Path

import torch
from torch import Tensor

from engine.device.kernels.cpu.native_levels import COMMON_FLAGS, DEFINES, FOLDER, shipped, sources
from engine.protocol.cache_folder import cache_folder

logger = logging.getLogger("weir.engine")

FLAGS = ("-march=native", *COMMON_FLAGS)
QUICK = 2**23
"""A kernel reads this many elements in about half a millisecond."""


@functools.cache
def load(dtype: torch.dtype) -> "Library | None":
    """The kernels for an element type. None if they cannot be compiled or loaded; the log says why."""
    name = str(dtype).removeprefix("torch.")
    if name not in DEFINES:
        return None
    library = _shipped(dtype, name)
    origin = "as they came"
    if library is None:
        try:
            library = Library(_build(name), dtype)
        except (OSError, subprocess.SubprocessError) as error:
            logger.info("no kernels in C, torch's own operators do the work: %s", error)
            return None
        origin = "compiled for this processor"
    logger.info("kernels in C for %s, by %s, %s", name, library.instructions, origin)
    return library


class Library:
    """The C functions, compiled for one element type. Every tensor passed to them is contiguous, of that
    type, and on the CPU."""

    def __init__(self, path: Path, dtype: torch.dtype) -> None:
        self.functions = _declared(ctypes.CDLL(str(path)))
        """These release the interpreter's lock while they run."""
        self._quick_functions = _declared(ctypes.PyDLL(str(path)))
        """These keep the interpreter's lock."""
        self.dtype = dtype
        self.pair: int = self._constant("linear_pair")
        """Inputs that one step of a matrix multiplication reads: 2 of this type, or 1 in float32."""
        self.quantized_panel: int = self._constant("quantized_panel")
        """Outputs whose quantized weights lie together."""
        self.quantized_grain: int = self._constant("quantized_grain")
        """A multiplication with quantized weights reads a multiple of this number of inputs."""
        self.quantized_span: int = self._constant("quantized_span")
        """It scales the sums of so many inputs, or of a group that has fewer."""
        self.instructions = (c_char_p.in_dll(self.functions, "instructions").value or b"").decode()
        """The widest instructions that products are compiled for, by the usual name."""
        self.has_tiles = bool(self.functions.can_use_tiles())
        """Whether the processor has AMX for this type, and the system lets this process use it."""

    def functions_for(self, num_elements: int) -> ctypes.CDLL:
        """The functions to call when they read or write so many elements.

        A short call keeps the interpreter's lock. Otherwise the event loop could take the lock at every
        operator, and a step would wait for the lock longer than it computes.
        """
        return self._quick_functions if num_elements <= QUICK else self.functions

    def _constant(self, name: str) -> int:
        return c_int64.in_dll(self.functions, name).value


def address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _declared(functions: ctypes.CDLL) -> ctypes.CDLL:
    # Without declared types, ctypes would pass addresses as C's int.
    pointer, size = c_void_p, c_int64
    functions.rms_norm.argtypes = (pointer, pointer, pointer, size, size, c_float)
    functions.silu_and_mul.argtypes = (pointer, pointer, size, size)
    functions.attend.argtypes = (pointer,) * 5
    functions.layer_scratch.argtypes, functions.layer_scratch.restype = (pointer, pointer), size
    functions.run_layer.argtypes = (pointer,) * 6 + (size, pointer)
    functions.run_layer.restype = c_int
    functions.score.argtypes = (pointer,) * 5 + (size,) * 3
    functions.linear.argtypes = (pointer, pointer, pointer, pointer, size)
    functions.linear.restype = c_int
    functions.pack.argtypes = (pointer, pointer, size, size)
    functions.quantized_linear.argtypes = (pointer, pointer, pointer, pointer, size)
    functions.quantized_linear.restype = c_int
    functions.quantized_pack.argtypes = (pointer, pointer, size, size, size, c_int)
    for name in ("quantized_pack", "rms_norm", "silu_and_mul", "attend", "score", "pack"):
        getattr(functions, name).restype = None
    functions.can_use_tiles.argtypes, functions.can_use_tiles.restype = (), size
    functions.linear_steps.argtypes, functions.linear_steps.restype = (size,), size
    functions.packed_bytes.argtypes, functions.packed_bytes.restype = (size, size), size
    return functions


def _shipped(dtype: torch.dtype, name: str) -> "Library | None":
    """The kernels that came compiled. None if there are none for this processor, or if `CC` names a compiler:
    whoever does so wants its code."""
    path = None if os.environ.get("CC") else shipped(name, processor().decode().split())
    if path is None:
        return None
    try:
        return Library(path, dtype)
    except OSError as error:
        logger.info("%s cannot be loaded: %s", path.name, error)
        return None


def _build(dtype: str) -> Path:
    """The compiled library, from the cache if it is there. Raises `OSError` or `SubprocessError`."""
    name, *options = shlex.split(os.environ.get("CC", "")) or ["cc"]
    compiler = shutil.which(name)
    if compiler is None:
        raise OSError(f"C compiler {name!r} not found")
    command = [compiler, *options, *FLAGS, DEFINES[dtype]]
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout
    made_of = [*sources(), version, " ".join(command).encode(), processor()]
    digest = hashlib.sha256(b"\0".join(made_of)).hexdigest()[:24]
    folder = cache_folder()
    library = folder / f"kernels-{digest}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / "kernels.so"
            command += [*map(str, sorted(FOLDER.glob("*.c"))), "-lm", "-o", str(made)]
            subprocess.run(command, capture_output=True, check=True)
            made.replace(library)  # atomic: another process may compile the same file now
    return library


def processor() -> bytes:
    """The processor's name and features."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_bytes().splitlines() if cpuinfo.exists() else [platform.processor().encode()]
    return b"\n".join(line for line in lines[:40] if line.startswith((b"flags", b"Features", b"model name")))
