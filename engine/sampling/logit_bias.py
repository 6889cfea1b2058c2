"""A request's `logit_bias` on the device."""

from collections.abc import Mapping

from torch import Tensor

from engine.device.transfers import on_device


class LogitBias:
    """It may name the whole vocabulary. The request's sequences share it."""

    def __init__(self, biases: Mapping[int, float]) -> None:
        self._biases = biases
        self._tensors: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return len(self._biases)

    def tensors(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Token ids and their biases, on the device of `logits` and in its dtype."""
        if self._tensors is None:
            ids = on_device(list(self._biases), logits.device)
            self._tensors = ids, on_device(list(self._biases.values()), logits.device, logits.dtype)
        return self._tensors
