"""The kernels that a decoder needs. Decoder and kernels both import this module, and not each other."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from engine.device.batch import Batch
from engine.device.kernels.quantized import Weight
from engine.device.kv_cache import KVCache


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """The properties that the attention of all layers shares."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    """The norms on queries and keys use this value too."""
    rope_table: Tensor
    """Cosines, then sines, of each position's angles, `[max_model_len, head_dim]`, float32."""


@dataclass(frozen=True, slots=True, eq=False)
class AttentionLayer:
    index: int
    window: int | None
    """Tokens that a token sees, itself included. None: all before it."""
    q_norm: Tensor | None
    """Weights of the norm on each head's query, `[head_dim]`. None: queries are not normed."""
    k_norm: Tensor | None


class Linear(Protocol):
    """A matrix multiplication, its weights laid out for the device."""

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """`[tokens, in]` to `[tokens, out]`, plus `residual` `[tokens, out]`."""


class LinearMaker(Protocol):
    """Makes `Linear`s of one kind."""

    def __call__(self, weight: Weight, bias: Tensor | None, /) -> Linear | None:
        """`weight` is `[out, in]`, its columns in the order of the inputs. None: it cannot multiply such
        weights."""


@dataclass(frozen=True, slots=True, eq=False)
class DecoderLayer:
    attention: AttentionLayer
    input_norm: Tensor
    qkv: Linear
    """Gives queries, keys and values, in this order, `[tokens, (heads + 2 kv_heads) * head_dim]`."""
    o: Linear
    post_attention_norm: Tensor
    gate_up: Linear
    """Gives gate and up, in this order, `[tokens, 2 intermediate]`."""
    down: Linear


class StepKernels(Protocol):
    """The kernels for one batch. Inputs and outputs have the model's type; sums are kept in float32."""

    def run(self, layer: DecoderLayer, x: Tensor, rows: Tensor | None = None) -> Tensor:
        """A whole layer, `[tokens, hidden]` to `[rows, hidden]`. All keys and values are stored. `rows`
        `[rows]`: the tokens to compute after that; None: all of them."""
        attended = self.attend(layer.attention, layer.qkv(self.rms_norm(x, layer.input_norm)))
        if rows is not None:
            x, attended = x[rows], attended[rows]
        x = layer.o(attended, residual=x)
        gate_up = layer.gate_up(self.rms_norm(x, layer.post_attention_norm))
        return layer.down(self.silu_and_mul(gate_up), residual=x)

    def rms_norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """The root mean square norm of each row `[rows, dim]` (Zhang and Sennrich, 2019)."""

    def silu_and_mul(self, gate_up: Tensor) -> Tensor:
        """`silu(gate) * up`: `[rows, 2 dim]` to `[rows, dim]`."""

    def attend(self, layer: AttentionLayer, qkv: Tensor) -> Tensor:
        """Norm and rotate queries and keys, store keys and values in the cache, attend.

        `qkv` `[tokens, (heads + 2 kv_heads) * head_dim]` may be overwritten. The result is
        `[tokens, heads * head_dim]`.
        """


class Kernels(Protocol):
    """An implementation, for one model."""

    linears: Mapping[str, LinearMaker]
    """The kernels' own ways to multiply matrices, by name. Each adds the products of a row in the same order,
    whatever the other rows are."""

    def step(self, batch: Batch, kv_cache: KVCache) -> StepKernels: ...
