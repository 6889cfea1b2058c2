"""How the decoder's matrices come from a checkpoint: as they are, rounded, or unpacked."""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from torch import Tensor

from engine.device.kernels.quantized import QuantizedWeight, Weight
from engine.models.checkpoint import Checkpoint
from engine.models.packed import packed_weights
from engine.models.quantized import quantize_int4, quantize_int8
from engine.protocol.options import EngineConfig
from engine.sources.model_config import ModelConfig


class WeightFormat(Protocol):
    def take(self, checkpoint: Checkpoint, *names: str) -> Weight:
        """The matrix of the modules `names`, which have the same inputs: the outputs of the first come first.
        Raises `KeyError` for a missing tensor, `ValueError` for tensors that do not belong together."""

    def take_head(self, checkpoint: Checkpoint, tied: Weight | None) -> Weight:
        """The matrix that gives the logits. `tied`: the embedding, if the model has no other such matrix."""


class PlainWeights:
    """Implements `WeightFormat`."""

    def take(self, checkpoint: Checkpoint, *names: str) -> Weight:
        return checkpoint.take_matrix(*names)

    def take_head(self, checkpoint: Checkpoint, tied: Weight | None) -> Weight:
        return self.take(checkpoint, "lm_head") if tied is None else tied


class RoundedWeights:
    """Implements `WeightFormat`. The logits' matrix gets 8 bits: with 4 it loses more than other matrices.
    Matrices that a checkpoint keeps in whole numbers are not rounded again."""

    def __init__(self, quantize: Callable[[Tensor], QuantizedWeight]) -> None:
        self._quantize = quantize

    def take(self, checkpoint: Checkpoint, *names: str) -> QuantizedWeight:
        weight = checkpoint.take_matrix(*names)
        return self._quantize(weight) if isinstance(weight, Tensor) else weight

    def take_head(self, checkpoint: Checkpoint, tied: Weight | None) -> QuantizedWeight:
        weight = PlainWeights().take_head(checkpoint, tied)
        return quantize_int8(weight) if isinstance(weight, Tensor) else weight


def weight_format(config: EngineConfig, hf_config: ModelConfig) -> WeightFormat:
    """Raises `ValueError` for a checkpoint that cannot be read so."""
    packing = getattr(hf_config, "quantization_config", None)
    if packing is not None:
        if config.quantization:
            raise ValueError("its weights are rounded already, so quantization must not be set")
        return packed_weights(packing if isinstance(packing, dict) else packing.to_dict())
    if config.quantization == "int8":
        return RoundedWeights(quantize_int8)
    if config.quantization == "int4":
        return RoundedWeights(partial(quantize_int4, group_size=config.quantization_group_size))
    return PlainWeights()
