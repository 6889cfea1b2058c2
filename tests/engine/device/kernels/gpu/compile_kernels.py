"""Compiles the kernels for a GPU that need not be there, and says what each takes of it.

    python compile_kernels.py COMPUTE_CAPABILITY steps|one|models

It prints a line of JSON for each launch that needed a kernel of its own: the kernel's name, what it was for,
its warps, its spills and its shared memory in bytes. Triton's interpreter compiles nothing, so that a test
runs this in a process of its own.

- `steps`: one model, in steps of different sizes and places in memory.
- `one`: the kernels of one kind of layer. `models`: those of every kind of model and layer.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[5]))

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from engine.device.attention import Scoring
from engine.device.kernels.gpu.triton_decode import MAX_SPLITS, decode
from engine.device.kernels.gpu.triton_pointwise import rotate_and_keep, silu_and_mul
from engine.device.kernels.gpu.triton_prefill import prefill
from engine.device.kernels.protocol import AttentionShape

CAPABILITY = int(sys.argv[1])
CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
TOKENS, BLOCK_SIZE, KV_HEADS = 4, 16, 2


LAYERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "window": {"sliding_window": 100},
    "window and sinks": {"sliding_window": 100},
    "window, softcap and sinks": {"sliding_window": 100, "softcap": 5.0},
}
MOST = "window, softcap and sinks"


class Target:
    """All that Triton asks of a driver before it launches anything."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", CAPABILITY, 32)


launch = JITFunction.run
seen: set[str] = set()
what = ""


def only_compile(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
    kernel = launch(self, *args, grid=grid, warmup=True, **options)
    if kernel.hash not in seen:
        seen.add(kernel.hash)
        kernel.n_spills = _stack_bytes(kernel.asm["cubin"]) // 4  # as a driver tells when it loads the kernel
        found = {"name": self.fn.__name__, "what": what, "num_warps": kernel.metadata.num_warps}
        print(json.dumps(found | {"spills": kernel.n_spills, "shared": kernel.metadata.shared}), flush=True)
    return kernel


def _stack_bytes(cubin: bytes) -> int:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = subprocess.run(
            [CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    (found,) = re.findall(r"STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", usage)
    return sum(map(int, found))


class Case(NamedTuple):
    dim: int
    group: int
    dtype: torch.dtype
    splits: tuple[int, ...] = (1, 8)
    layers: tuple[str, ...] = tuple(LAYERS)

    def compile(self, width: int = 16, shift: int = 0) -> None:
        """`width`, `shift`: of what differs from step to step."""
        global what
        heads, dim, dtype = KV_HEADS * self.group, self.dim, self.dtype
        tables = torch.zeros(TOKENS * width + shift, dtype=torch.int64)[shift:].view(TOKENS, width)
        ids, bounds = (torch.zeros(n + shift, dtype=torch.int64)[shift:] for n in (TOKENS, 2))
        query = torch.zeros(TOKENS, heads, dim, dtype=dtype)
        keys = torch.zeros(10, KV_HEADS, BLOCK_SIZE, dim, dtype=dtype)
        for name in self.layers:
            scoring = Scoring(**LAYERS[name])
            if "sinks" in name:
                scoring = replace(scoring, s_aux=torch.zeros(heads, dtype=dtype))
            what = f"{heads} heads on {KV_HEADS} of {dim}, {dtype}, {name}"
            for num_splits in self.splits:
                decode(query, keys, keys, tables, ids, scoring, query, num_splits)
            for _ in range(2):  # the first launch says how many warps are right
                prefill(query, keys, keys, tables[:1], bounds, ids, TOKENS, scoring, query)
        for norm in (None, torch.zeros(dim, dtype=dtype)):
            what = f"{heads} heads on {KV_HEADS} of {dim}, {dtype}, norm {norm is not None}"
            shape = AttentionShape(heads, KV_HEADS, dim, 1e-6, torch.zeros(100, dim))
            qkv = torch.zeros(TOKENS, (heads + 2 * KV_HEADS) * dim, dtype=dtype)
            rotate_and_keep(qkv, shape, norm, norm, ids, ids, keys, keys)
        what = str(dtype)
        silu_and_mul(torch.zeros(TOKENS, 6000, dtype=dtype))


ONE = Case(128, 4, torch.bfloat16, (8,), (MOST,))


def models() -> Iterator[Case]:
    """Every kind of layer for one shape, two kinds for all sizes of heads, one for all groups of heads."""
    for dtype in (torch.bfloat16, torch.float16):
        yield Case(128, 4, dtype, splits=tuple(2**i for i in range(MAX_SPLITS.bit_length())))
        for dim in (64, 80, 96, 128, 256):
            yield Case(dim, 4, dtype, layers=("plain", MOST))
            yield from (Case(dim, group, dtype, splits=(8,), layers=(MOST,)) for group in (1, 7, 8))


if __name__ == "__main__":
    driver.set_active(Target())
    JITFunction.run = only_compile
    if sys.argv[2] == "steps":
        for width, shift in ((5, 0), (1, 1), (16, 1)):
            for dtype in (torch.bfloat16, torch.float16):
                Case(128, 2, dtype).compile(width, shift)
    else:
        for case in models() if sys.argv[2] == "models" else [ONE]:
            case.compile()
