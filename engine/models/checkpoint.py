"""A checkpoint's tensors by the names that transformers gives them, read without building a module tree.

On torch's device `meta`, tensors have shapes and no numbers: nothing but the files' headers is read.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from engine.device.kernels.quantized import Weight

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


Embedding = Callable[[Tensor], Tensor]
"""Gives the row of each token: `[tokens]` to `[tokens, hidden]`."""


class Checkpoint(ABC):
    """Reads a tensor when it is taken, converts it to `dtype` and moves it to `device`."""

    dtype: torch.dtype
    unread: set[str]
    """Names of tensors that nothing has read."""

    @abstractmethod
    def __contains__(self, name: str) -> bool: ...

    @abstractmethod
    def take(self, name: str) -> Tensor:
        """Raises `KeyError` if the checkpoint has no tensor of this name."""

    @abstractmethod
    def take_as_stored(self, name: str) -> Tensor:
        """As `take`, in the type of the file."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take_any(self, name: str) -> Tensor | None:
        """None if the checkpoint has no tensor of this name."""
        return self.take(name) if name in self else None

    def take_matrix(self, *names: str) -> Weight:
        """The matrix of the modules `names`, the outputs of the first before those of the next. A checkpoint
        of whole numbers gives them as they are if there is a kernel for them."""
        parts = [self.take(f"{name}.weight") for name in names]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def take_embedding(self, name: str, tied: Weight | None) -> Embedding:
        """The rows of the module `name`. `tied`: its matrix, if that also gives the logits."""
        rows = tied if isinstance(tied, Tensor) else self.take(f"{name}.weight")
        return rows.__getitem__


class SafetensorsCheckpoint(Checkpoint):
    def __init__(self, files: dict[str, Path], dtype: torch.dtype, device: torch.device) -> None:
        """`files`: the file that holds each tensor."""
        self._files = files
        self.dtype = dtype
        self._device = device
        self._stack = ExitStack()
        self._open: dict[Path, Any] = {}
        self.unread = set(files)

    @classmethod
    def of(cls, folder: Path, dtype: torch.dtype, device: torch.device) -> "SafetensorsCheckpoint":
        """Raises `ValueError` if the folder has no safetensors files."""
        files = safetensors_in(folder)
        if files is None:
            raise ValueError("it has no safetensors files")
        return cls(files, dtype, device)

    def close(self) -> None:
        self._stack.close()

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def take(self, name: str) -> Tensor:
        return self.take_as_stored(name).to(self.dtype)

    def take_as_stored(self, name: str) -> Tensor:
        path = self._files[name]
        if path not in self._open:
            self._open[path] = self._stack.enter_context(safe_open(path, "pt"))
        self.unread.discard(name)
        if self._device.type == "meta":
            return _without_numbers(self._open[path].get_slice(name))
        tensor: Tensor = self._open[path].get_tensor(name)
        return tensor.to(self._device)


def safetensors_in(folder: Path) -> dict[str, Path] | None:
    """The file that holds each tensor. None if the folder has no safetensors files."""
    if (folder / INDEX).exists():
        names = json.loads((folder / INDEX).read_text())["weight_map"]
        return {name: folder / file for name, file in names.items()}
    if (folder / SINGLE).exists():
        with safe_open(folder / SINGLE, "pt") as file:
            return dict.fromkeys(file.keys(), folder / SINGLE)
    return None


def _without_numbers(stored: Any) -> Tensor:
    """The shape and the type of a tensor in a file."""
    shape = stored.get_shape()
    dtype = stored[:0].dtype if shape else stored[...].dtype
    return torch.empty(shape, dtype=dtype, device="meta")
