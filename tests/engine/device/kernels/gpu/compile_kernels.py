"""Compiles the kernels for a GPU of the given compute capability, which need not be there, and tells how much
shared memory each takes, a line for each one compiled. Run by a test, since the interpreter compiles nothing.
"""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[5]))

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from engine.device.attention import Scoring
from engine.device.kernels.gpu.triton_decode import decode
from engine.device.kernels.gpu.triton_pointwise import rotate_and_keep, silu_and_mul
from engine.device.kernels.gpu.triton_prefill import prefill
from engine.device.kernels.protocol import AttentionShape


class Target:
    """All that Triton asks of a driver before it launches anything."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", int(sys.argv[1]), 32)


launch = JITFunction.run
compiled: dict[str, tuple[str, int]] = {}


def only_compile(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
    kernel = launch(self, *args, grid=grid, warmup=True, **options)
    compiled[kernel.hash] = self.fn.__name__, kernel.metadata.shared
    return kernel


driver.set_active(Target())
JITFunction.run = only_compile

HEADS, KV_HEADS, DIM, TOKENS = 16, 8, 128, 4
full = Scoring(sliding_window=100, softcap=5.0, s_aux=torch.zeros(HEADS))
for width, shift in ((5, 0), (1, 1), (16, 1)):  # of what differs from step to step
    tables = torch.zeros(TOKENS * width + shift, dtype=torch.int64)[shift:].view(TOKENS, width)
    ids, bounds = (torch.zeros(n + shift, dtype=torch.int64)[shift:] for n in (TOKENS, 2))
    for dtype in (torch.bfloat16, torch.float32):
        query = torch.zeros(TOKENS, HEADS, DIM, dtype=dtype)
        keys = torch.zeros(10, KV_HEADS, 16, DIM, dtype=dtype)
        for num_splits, scoring in ((1, Scoring()), (8, full)):
            decode(query, keys, keys, tables, ids, scoring, query, num_splits)
            prefill(query, keys, keys, tables[:1], bounds, ids, TOKENS, scoring, query)
        for norm in (None, torch.zeros(DIM, dtype=dtype)):
            shape = AttentionShape(HEADS, KV_HEADS, DIM, 1e-6, torch.zeros(100, DIM))
            qkv = torch.zeros(TOKENS, (HEADS + 2 * KV_HEADS) * DIM, dtype=dtype)
            rotate_and_keep(qkv, shape, norm, norm, ids, ids, keys, keys)
        silu_and_mul(torch.zeros(TOKENS, 6000, dtype=dtype))
for name, shared in sorted(compiled.values()):
    print(name, shared)
