"""A checkpoint's tensors by name, read from safetensors files without building a module tree.

On torch's device `meta`, tensors have shapes and no numbers: nothing but the files' headers is read.
"""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from safetensors import safe_open
from torch import Tensor

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


class Checkpoint:
    """Reads a tensor when it is taken, converts it to `dtype` and moves it to `device`."""

    def __init__(self, files: dict[str, Path], dtype: torch.dtype, device: torch.device) -> None:
        self._files = files
        self._dtype = dtype
        self._device = device
        self._stack = ExitStack()
        self._open: dict[Path, Any] = {}
        self.unread = set(files)
        """Names of tensors that nothing has read."""

    @staticmethod
    def find(model: str) -> dict[str, Path] | None:
        """The file that holds each tensor. `model` is a directory or a name on the hub. None if the model has
        no safetensors files."""
        folder = Path(model)
        if not folder.is_dir():
            folder = Path(snapshot_download(model, allow_patterns=["*.safetensors", "*.json"]))
        if (folder / INDEX).exists():
            names = json.loads((folder / INDEX).read_text())["weight_map"]
            return {name: folder / file for name, file in names.items()}
        if (folder / SINGLE).exists():
            with safe_open(folder / SINGLE, "pt") as file:
                return dict.fromkeys(file.keys(), folder / SINGLE)
        return None

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def take(self, name: str) -> Tensor:
        """Raises `KeyError` if the checkpoint has no tensor of this name."""
        return self.take_as_stored(name).to(self._dtype)

    def take_as_stored(self, name: str) -> Tensor:
        """As `take`, in the type of the file."""
        path = self._files[name]
        if path not in self._open:
            self._open[path] = self._stack.enter_context(safe_open(path, "pt"))
        self.unread.discard(name)
        if self._device.type == "meta":
            return _without_numbers(self._open[path].get_slice(name))
        tensor: Tensor = self._open[path].get_tensor(name)
        return tensor.to(self._device)

    def take_any(self, name: str) -> Tensor | None:
        """None if the checkpoint has no tensor of this name."""
        return self.take(name) if name in self else None


def _without_numbers(stored: Any) -> Tensor:
    """The shape and the type of a tensor in a file."""
    shape = stored.get_shape()
    dtype = stored[:0].dtype if shape else stored[...].dtype
    return torch.empty(shape, dtype=dtype, device="meta")
