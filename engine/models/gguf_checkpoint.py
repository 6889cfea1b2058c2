"""A GGUF file as a checkpoint: tensors by transformers' names, with the converter's changes undone."""

import logging
from collections import Counter

import numpy as np
import torch
from gguf import MODEL_ARCH_NAMES, GGMLQuantizationType, get_tensor_name_map, quants
from numpy.typing import NDArray
from torch import Tensor

from engine.device.kernels.quantized import QuantizedWeight, Weight
from engine.models.checkpoint import Checkpoint, Embedding
from engine.models.gguf_blocks import KEPT, kept
from engine.sources.gguf_families import Keys, family_of
from engine.sources.gguf_file import GgufFile, StoredTensor

logger = logging.getLogger("weir.engine")

FLOATS = {0: torch.float32, 1: torch.float16, 30: torch.bfloat16}
"""The types of tensors that are numbers one by one."""
PART = 2**22
"""Weights that are unpacked at a time: they pass through float32."""
NOT_READ = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors that belong to the configuration (`engine.sources.gguf_families`)."""
NO_TEXT = ("v.", "mm.")
"""Tensors that read images begin so, in files of Ollama's."""
PERMUTED = ("self_attn.q_proj.", "self_attn.k_proj.")


class GgufCheckpoint(Checkpoint):
    def __init__(self, file: GgufFile, dtype: torch.dtype, device: torch.device, *, keeps: bool) -> None:
        """`keeps`: whether matrices of whole numbers for which there is a kernel stay as they are."""
        self._file = file
        self.dtype = dtype
        self._device = device
        self._keeps = keeps
        self._family = family_of(file)
        self._keys = Keys(file)
        architecture = next(key for key, name in MODEL_ARCH_NAMES.items() if name == file.architecture)
        self._names = get_tensor_name_map(architecture, self._keys.get("block_count"))
        self.unread = {n for n in file.tensors if n not in NOT_READ and not n.startswith(NO_TEXT)}
        self._kept: Counter[int] = Counter()
        self._unpacked: Counter[int] = Counter()
        """Bytes in the file of each type's tensors that were kept, and unpacked."""
        self._num_unpacked = 0

    def close(self) -> None:
        """Log what has become of the weights, in bytes."""
        if self._device.type == "meta":
            return
        if self._kept:
            logger.info("%s: %s stay as they are", self._file.path.name, _listed(self._kept))
        if self._unpacked:
            logger.info(
                "%s: %s are unpacked to %s and take %s",
                self._file.path.name,
                _listed(self._unpacked),
                str(self.dtype).removeprefix("torch."),
                _megabytes(self._num_unpacked * self.dtype.itemsize),
            )

    def __contains__(self, name: str) -> bool:
        return self._stored_name(name) in self._file.tensors

    def take(self, name: str) -> Tensor:
        stored = self._stored(name)
        if self._device.type == "meta":
            return torch.empty(stored.shape, dtype=self.dtype, device=self._device)
        if stored.kind not in FLOATS:
            self._unpacked[stored.kind] += stored.num_bytes
            self._num_unpacked += int(np.prod(stored.shape))
        tensor = torch.empty(stored.shape, dtype=self.dtype)
        flat, rows = tensor.view(stored.shape[0], -1), self._rows(name, stored)
        step = max(1, PART // flat.shape[1])
        for first in range(0, len(rows), step):
            flat[first : first + step] = self._values(name, rows[first : first + step], stored.kind)
        return tensor.to(self._device)

    def take_as_stored(self, name: str) -> Tensor:
        return self.take(name)

    def take_matrix(self, *names: str) -> Weight:
        stored = [self._stored(f"{name}.weight") for name in names]
        kinds = {one.kind for one in stored}
        if not self._keeps or len(kinds) > 1 or not kinds.issubset(KEPT) or self._device.type == "meta":
            return super().take_matrix(*names)
        parts = []
        for name, one in zip(names, stored, strict=True):
            self._kept[one.kind] += one.num_bytes
            parts.append(kept(self._rows(f"{name}.weight", one), one.kind))
        return parts[0] if len(parts) == 1 else QuantizedWeight.cat(parts)

    def take_embedding(self, name: str, tied: Weight | None) -> Embedding:
        """If weights are kept, rows are read from the file when a step needs them: the system holds those
        that are used."""
        name = f"{name}.weight"
        stored = self._stored(name)
        if not self._keeps or self._device.type == "meta":
            return super().take_embedding(name.removesuffix(".weight"), tied)
        rows = self._rows(name, stored)
        return lambda ids: self._values(name, rows[ids.numpy()], stored.kind).to(self.dtype)

    def _stored_name(self, name: str) -> str | None:
        found: str | None = self._names.get_name(name, (".weight", ".bias"))
        return found

    def _stored(self, name: str) -> StoredTensor:
        """Raises `KeyError` if the file has no tensor of this name."""
        stored_name = self._stored_name(name)
        if stored_name not in self._file.tensors:
            raise KeyError(name)
        self.unread.discard(stored_name)
        return self._file.tensors[stored_name]

    def _rows(self, name: str, stored: StoredTensor) -> NDArray[np.uint8]:
        """The bytes of each row, `[rows, bytes]`, in the order of transformers."""
        data = np.memmap(stored.path, np.uint8, "r", stored.offset, (stored.num_bytes,))
        rows = data.reshape(stored.shape[0], -1)
        if not self._family.permutes_heads or not any(part in name for part in PERMUTED):
            return rows
        key = "attention.head_count" if "q_proj" in name else "attention.head_count_kv"
        heads = self._keys.get(key, self._keys.get("attention.head_count"))
        # llama.cpp rotates neighbours. Transformers rotates a head's first half with its second half.
        order = np.arange(len(rows)).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)
        return rows[order]

    def _values(self, name: str, rows: NDArray[np.uint8], kind: int) -> Tensor:
        """In float32, or as stored."""
        rows = np.ascontiguousarray(rows)
        if kind in FLOATS:
            values = torch.from_numpy(rows.copy()).view(FLOATS[kind])
        else:
            values = torch.from_numpy(quants.dequantize(rows, GGMLQuantizationType(kind)))
        is_norm = name.endswith("norm.weight")
        return values.float() - self._family.norm_offset if is_norm else values


def _listed(num_bytes: Counter[int]) -> str:
    return " and ".join(
        f"{_megabytes(n)} in {GGMLQuantizationType(kind).name}" for kind, n in num_bytes.items()
    )


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.1f} MB"
