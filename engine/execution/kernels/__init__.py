"""What a decoder does besides multiplying matrices, once for each kind of device.

`TorchKernels` runs everywhere and says what the others must compute. `NativeKernels` is C for the CPU, and
`TritonKernels` is for GPUs.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from engine.execution.batch import Batch
from engine.execution.kv_cache import KVCache

if TYPE_CHECKING:
    from engine.execution.kernels.cpu.native import Library
    from engine.execution.models.decoder import Layer


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """What all layers' attention has in common."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    """Also of the norms on queries and keys."""
    rope_table: Tensor
    """Cosines, then sines, of each position's angles, `[max_model_len, head_dim]`, float32."""


class StepKernels(Protocol):
    """For the tokens of one batch. All take and give the model's type; sums are kept in float32."""

    def rms_norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """Of each row `[rows, dim]` (Zhang and Sennrich, 2019)."""

    def silu_and_mul(self, gate_up: Tensor) -> Tensor:
        """`silu(gate) * up` of `[rows, 2 dim]`, `[rows, dim]`."""

    def attend(self, layer: "Layer", qkv: Tensor) -> Tensor:
        """Norm and rotate queries and keys, keep keys and values, attend.

        `[tokens, (heads + 2 kv_heads) * head_dim]`, which may be overwritten, gives `[tokens, heads *
        head_dim]`.
        """


class Kernels(Protocol):
    library: "Library | None"
    """Kernels in C, where they are what runs."""

    def step(self, batch: Batch, kv_cache: KVCache) -> StepKernels: ...
