"""The last part of a decoder: the matrix of the next token, or heads that classify tokens."""

from collections.abc import Callable, Mapping
from typing import Protocol

from torch import Tensor

from engine.device.kernels.protocol import Linear
from engine.device.kernels.quantized import Weight
from engine.models.checkpoint import Checkpoint
from engine.sources.model_config import ModelConfig

Labels = Mapping[str, tuple[str, ...]]
"""The labels of each group of logits, in order. The groups' logits are side by side, in this order, too."""
MakeLinear = Callable[[Weight, Tensor | None], Linear]

QWEN3_GUARD = "Qwen3ForGuardModel"
TOKEN_CLASSIFICATION = "ForTokenClassification"


Head = Callable[[Tensor], Tensor]
"""The last part of a decoder: the final norm's output `[rows, hidden]` to logits `[rows, logits]`."""


class ClassificationHeads(Protocol):
    """The heads that a checkpoint's configuration names."""

    labels: Labels

    def take(self, checkpoint: Checkpoint, make_linear: MakeLinear) -> Head:
        """Read the heads' tensors. The sums of the last matrices, and their logits, are float32 whatever the
        model's type is. Raises `KeyError` for a missing tensor, `ValueError` for one of a wrong shape."""


def classifies_tokens(config: ModelConfig) -> bool:
    """Whether `engine.models.classification_heads` knows the checkpoint's heads."""
    architecture = next(iter(config.architectures or ()), "")
    return architecture == QWEN3_GUARD or architecture.endswith(TOKEN_CLASSIFICATION)


def labels_of(model: str, labels: Labels | None) -> Labels:
    """The labels that the model classifies tokens by. Raises `ValueError` if it has none."""
    if labels is None:
        raise ValueError(f"{model} does not classify tokens: it has no heads for that.")
    return labels


def check_generates(model: str, labels: Labels | None) -> None:
    """Raise `ValueError` for a model that classifies tokens."""
    if labels is not None:
        raise ValueError(f"{model} classifies tokens: it cannot generate.")
