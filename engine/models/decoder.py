"""Weir's own decoder for the common family: Llama, Mistral, Qwen2, Qwen3 and similar models.

The models differ by configuration only: grouped heads, biases, norms on queries and keys, sliding windows.
The weights come straight from a checkpoint. Queries, keys and values share one matrix; gate and up share
another. The device's `Kernels` compute everything but the matrix multiplications.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from engine.device.batch import Batch
from engine.device.capture import Capture, check_layers
from engine.device.kernels.protocol import AttentionLayer, AttentionShape, DecoderLayer, Kernels, Linear
from engine.device.kernels.torch_kernels import TorchKernels
from engine.device.kv_cache import KVCache, LayerShape
from engine.models.checkpoint import Checkpoint
from engine.models.heads import ClassificationHeads, Head, Labels, MakeLinear
from engine.models.weights import WeightFormat
from engine.sources.model_config import FAMILY, ROPE_FREQUENCIES, ModelConfig

ROPE_TYPES = {"default", "linear", "llama3", "yarn"}
"""Kinds of rotary embedding whose frequencies do not depend on the text's length."""
EMBEDDING = "model.embed_tokens"
DERIVED = ("rotary_emb.inv_freq",)
"""Tensors of old checkpoints that repeat the configuration. They are not read."""


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """The fields of a transformers configuration that this decoder depends on."""

    attention: AttentionShape
    windows: tuple[int | None, ...]
    """Each layer's sliding window in tokens. None: the layer sees all tokens."""
    tie_word_embeddings: bool

    @classmethod
    def of(cls, config: ModelConfig, max_len: int, device: torch.device) -> "DecoderConfig | None":
        """None if the model is not of the family. `max_len`: the longest text, in tokens."""
        rope = getattr(config, "rope_parameters", None) or {}
        if (
            config.model_type not in FAMILY
            or config.hidden_act != "silu"
            or not _is_fixed(rope)
            or rope.get("partial_rotary_factor", 1.0) != 1.0
        ):
            return None
        num_heads = config.num_attention_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // num_heads
        attention = AttentionShape(
            num_heads=num_heads,
            num_kv_heads=config.num_key_value_heads or num_heads,
            head_dim=head_dim,
            rms_norm_eps=config.rms_norm_eps,
            rope_table=_rope_table(config, head_dim, max_len, device),
        )
        return cls(attention, _windows(config), config.tie_word_embeddings)


class Decoder:
    """Implements `Model` (`engine.models.load`)."""

    def __init__(
        self,
        config: DecoderConfig,
        checkpoint: Checkpoint,
        kernels: Kernels,
        weights: WeightFormat,
        make_linear: MakeLinear,
        heads: ClassificationHeads | None = None,
    ) -> None:
        """`heads`: those of a model that classifies tokens; None: it gives the next token's logits.

        Raises `KeyError` for a missing tensor, `ValueError` for a tensor that nothing reads.
        """
        self._kernels = kernels
        self._weights = weights
        self._make_linear = make_linear
        tied = checkpoint.take_matrix(EMBEDDING) if config.tie_word_embeddings else None
        self._embedding = checkpoint.take_embedding(EMBEDDING, tied)
        self._layers = [self._layer(checkpoint, i, window) for i, window in enumerate(config.windows)]
        self._norm = checkpoint.take("model.norm.weight")
        self._head: Head
        if heads is None:
            self._head = make_linear(weights.take_head(checkpoint, tied), None)
        else:
            self._head = heads.take(checkpoint, make_linear)
        self.labels: Labels | None = None if heads is None else heads.labels
        if left := [n for n in checkpoint.unread if not n.endswith(DERIVED) and n != "lm_head.weight"]:
            raise ValueError(f"it has tensors that this decoder does not know: {', '.join(sorted(left)[:3])}")
        self.device = self._norm.device
        self.dtype = self._norm.dtype
        # Graphs of torch's kernels would always gather as many blocks as the widest table has room for.
        self.can_be_captured = self.device.type == "cuda" and not isinstance(kernels, TorchKernels)
        self._capture: Capture | None = None
        self._takers: dict[int, Callable[[Tensor], None]] = {}
        """Take the outputs of the captured layers. The final norm counts as the layer after the last."""
        attention = config.attention
        shape = LayerShape(attention.num_kv_heads, attention.head_dim, attention.head_dim)
        self.layers = dict.fromkeys(range(len(self._layers)), shape)

    def watch(self, capture: Capture | None) -> None:
        names = [*(f"model.layers.{i}" for i in range(len(self._layers))), "model.norm"]
        takers: dict[int, Callable[[Tensor], None]] = {}
        if capture is not None:
            check_layers(capture, names)
            takers = {i: partial(capture.take, n) for i, n in enumerate(names) if n in capture.layers}
        self._capture, self._takers = capture, takers

    def forward(self, batch: Batch, kv_cache: KVCache) -> Tensor:
        step = self._kernels.step(batch, kv_cache)
        x = self._embedding(batch.token_ids)
        last = len(self._layers) - 1
        keeps_all = last in self._takers or last + 1 in self._takers
        if self._capture is not None:
            self._capture.begin(batch, kv_cache)
        for i, layer in enumerate(self._layers):
            # After the last layer's attention, only tokens whose logits are wanted are computed.
            x = step.run(layer, x, batch.logit_rows if i == last and not keeps_all else None)
            if i in self._takers:
                self._takers[i](x)
        x = step.rms_norm(x, self._norm)
        if last + 1 in self._takers:
            self._takers[last + 1](x)
        return self._head(x[batch.logit_rows] if keeps_all else x)

    def _layer(self, checkpoint: Checkpoint, index: int, window: int | None) -> DecoderLayer:
        name = f"model.layers.{index}."

        def linear(*parts: str) -> Linear:
            weight = self._weights.take(checkpoint, *(name + part for part in parts))
            biases = [checkpoint.take_any(f"{name}{part}.bias") for part in parts]
            bias = torch.cat([b for b in biases if b is not None]) if biases[0] is not None else None
            return self._make_linear(weight, bias)

        q_norm = checkpoint.take_any(f"{name}self_attn.q_norm.weight")
        k_norm = checkpoint.take_any(f"{name}self_attn.k_norm.weight")
        return DecoderLayer(
            attention=AttentionLayer(index, window, q_norm, k_norm),
            input_norm=checkpoint.take(f"{name}input_layernorm.weight"),
            qkv=linear("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            o=linear("self_attn.o_proj"),
            post_attention_norm=checkpoint.take(f"{name}post_attention_layernorm.weight"),
            gate_up=linear("mlp.gate_proj", "mlp.up_proj"),
            down=linear("mlp.down_proj"),
        )


def _is_fixed(rope: dict[str, Any]) -> bool:
    """Whether the frequencies do not depend on the text's length."""
    rope_type = rope.get("rope_type", "default")
    is_longrope = rope_type == "longrope" and rope["short_factor"] == rope["long_factor"]
    return rope_type in ROPE_TYPES or is_longrope


def _rope_table(config: ModelConfig, head_dim: int, max_len: int, device: torch.device) -> Tensor:
    """Cosines, then sines, of each position's angles, `[max_len, head_dim]`, float32."""
    rope = config.rope_parameters
    rope_type = rope.get("rope_type", "default")
    if rope_type == "default":
        inv_freq = 1.0 / rope["rope_theta"] ** (torch.arange(0, head_dim, 2, dtype=torch.float) / head_dim)
        scaling = 1.0
    else:
        numbers, scaling = getattr(config, ROPE_FREQUENCIES, None) or _computed_frequencies(config)
        inv_freq = torch.tensor(numbers)
    angles = torch.arange(max_len, dtype=torch.float)[:, None] * inv_freq
    return (torch.cat([angles.cos(), angles.sin()], dim=1) * scaling).to(device)


def _computed_frequencies(config: ModelConfig) -> tuple[list[float], float]:
    from engine.sources.transformers_files import rope_frequencies  # the import takes a second

    return rope_frequencies(config)


def _windows(config: ModelConfig) -> tuple[int | None, ...]:
    layers: int = config.num_hidden_layers
    if config.model_type == "llama":
        return (None,) * layers
    window: int | None = config.sliding_window
    kinds: list[str] = getattr(config, "layer_types", None) or ["sliding_attention"] * layers
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)
