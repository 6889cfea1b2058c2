"""The seam between a model and those who read its activations."""

from collections.abc import Collection
from typing import Protocol

from torch import Tensor

from engine.device.batch import Batch
from engine.device.kv_cache import KVCache


class Capture(Protocol):
    """Is given the outputs of some layers in every step, one step after another."""

    @property
    def layers(self) -> frozenset[str]:
        """The layers by the names of transformers' modules: `model.layers.12`, `model.norm`."""

    def begin(self, batch: Batch, kv_cache: KVCache) -> None:
        """A step begins."""

    def take(self, layer: str, x: Tensor) -> None:
        """The layer's output `[tokens, hidden]`, in the model's type. Nobody writes to it any more. Every
        layer comes once."""


def check_layers(capture: Capture, names: Collection[str]) -> None:
    """Raises `ValueError` if the capture asks for a layer that is not in `names`."""
    if unknown := capture.layers - {*names}:
        raise ValueError(f"it has no layer {min(unknown)}")
