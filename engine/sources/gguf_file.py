"""The header of a GGUF file: what it says of its model, and where its tensors are.

The package `gguf` reads headers too: it takes 6 seconds for a vocabulary of 49,000 tokens, and this code 0.1.
The format is that of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3.
"""

import math
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf import GGML_QUANT_SIZES

from engine.sources.names import MAGIC, PART

SIZES: dict[int, tuple[int, int]] = {int(kind): sizes for kind, sizes in GGML_QUANT_SIZES.items()}
"""The elements of a block, and its bytes, of each type of tensor."""
VERSIONS = (2, 3)
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The letter of Python's `struct` for each type of number in metadata."""
STRING, ARRAY = 8, 9
FLOAT32 = 0
"""The kind of a tensor in float32."""
MOST_KEPT = 1024
"""An array of more elements is read when it is asked for."""
LEAST_ENTRY = 12
"""Bytes of the shortest entry of a header: a count is not believed if so many entries have no room."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    shape: tuple[int, ...]
    """In torch's order: the innermost dimension comes last."""
    kind: int
    """The number of its type: `gguf.GGMLQuantizationType` has the names."""
    path: Path
    offset: int
    """Bytes from the beginning of the file."""
    num_bytes: int


@dataclass(frozen=True, slots=True)
class LongArray:
    """An array of the metadata that has not been read."""

    path: Path
    offset: int
    kind: int
    count: int

    def __len__(self) -> int:
        return self.count

    def read(self) -> list[Any]:
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            values, _ = _Reader(data, self.path).elements(self.offset, self.kind, self.count)
            return values


class GgufFile:
    """The header of a file, or of all parts of a file that is split."""

    def __init__(self, path: Path) -> None:
        """Raises `ValueError`, with the file's name, for a file that is cut short or is no GGUF file, and for
        a part that is missing."""
        self.path = path
        self.metadata: dict[str, Any] = {}
        """Values by key. An array of more than `MOST_KEPT` elements is a `LongArray`."""
        self.tensors: dict[str, StoredTensor] = {}
        for part in _parts(path):
            metadata, tensors = _read(part)
            self.metadata = metadata | self.metadata
            self.tensors |= tensors

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture", ""))

    def header(self) -> bytes:
        """The header's bytes, of the first part of a file that is split."""
        begin = min((one.offset for one in self.tensors.values() if one.path == self.path), default=None)
        with self.path.open("rb") as file:
            return file.read(-1 if begin is None else begin)

    def values(self, key: str) -> list[Any]:
        """An array of the metadata. Empty if there is none."""
        found = self.metadata.get(key, [])
        return found.read() if isinstance(found, LongArray) else list(found)

    def floats(self, name: str) -> list[float] | None:
        """The numbers of a small tensor. None: there is none of this name. Raises `ValueError` unless it is
        in float32."""
        if (tensor := self.tensors.get(name)) is None:
            return None
        (count,) = tensor.shape
        if tensor.kind != FLOAT32:
            raise ValueError(f"{tensor.path} is damaged: {name} is not in float32")
        with tensor.path.open("rb") as file:
            file.seek(tensor.offset)
            return list(struct.unpack(f"<{count}f", file.read(4 * count)))


def _parts(path: Path) -> Iterator[Path]:
    numbers = PART.search(path.name)
    if numbers is None:
        yield path
        return
    for i in range(1, int(numbers[2]) + 1):
        part = path.with_name(PART.sub(f"-{i:05}-of-{numbers[2]}", path.name))
        if not part.is_file():
            raise ValueError(
                f"{path} is one of {int(numbers[2])} parts of a model, and {part.name} is missing"
            )
        yield part


def _read(path: Path) -> tuple[dict[str, Any], dict[str, StoredTensor]]:
    size = path.stat().st_size
    if size < 24:
        raise ValueError(f"{path} is not a whole GGUF file: it has {size} bytes")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return _Reader(data, path).header()
        except (struct.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{path} is cut short or damaged: its header cannot be read") from error


class _Reader:
    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._data = data
        self._path = path

    def header(self) -> tuple[dict[str, Any], dict[str, StoredTensor]]:
        if self._data[:4] != MAGIC:
            raise ValueError(f"{self._path} is not a GGUF file: it does not begin with GGUF")
        version, num_tensors, num_values = struct.unpack_from("<IQQ", self._data, 4)
        if version not in VERSIONS:
            raise ValueError(
                f"{self._path} has version {version} of GGUF, and not {' or '.join(map(str, VERSIONS))}"
            )
        self._check_room(num_tensors + num_values, LEAST_ENTRY)
        at, metadata = 24, {}
        for _ in range(num_values):
            key, at = self._string(at)
            (kind,) = struct.unpack_from("<I", self._data, at)
            metadata[key], at = self._value(at + 4, kind)
        infos = {}
        for _ in range(num_tensors):
            name, at = self._string(at)
            (num_dims,) = struct.unpack_from("<I", self._data, at)
            if num_dims > 8:
                raise ValueError(f"{self._path} is damaged: {name!r} has {num_dims} dimensions")
            *dims, kind, offset = struct.unpack_from(f"<{num_dims}QIQ", self._data, at + 4)
            infos[name] = (tuple(reversed(dims)), kind, offset)
            at += 16 + 8 * num_dims
        alignment = int(metadata.get("general.alignment") or 32)
        first = -(-at // alignment) * alignment
        return metadata, {
            name: self._tensor(name, shape, kind, first + offset)
            for name, (shape, kind, offset) in infos.items()
        }

    def _tensor(self, name: str, shape: tuple[int, ...], kind: int, offset: int) -> StoredTensor:
        if kind not in SIZES:
            raise ValueError(
                f"{self._path}: {name} has type {kind}, which the installed package gguf does not know"
            )
        elements, num_bytes = SIZES[kind]
        num_bytes *= math.prod(shape) // elements
        if offset + num_bytes > len(self._data):
            raise ValueError(f"{self._path} is cut short: {name} ends beyond its {len(self._data):,} bytes")
        return StoredTensor(shape, kind, self._path, offset, num_bytes)

    def elements(self, at: int, kind: int, count: int) -> tuple[list[Any], int]:
        """An array's elements, and the place after them."""
        if kind in NUMBERS:
            form = f"<{count}{NUMBERS[kind]}"
            return list(struct.unpack_from(form, self._data, at)), at + struct.calcsize(form)
        values = []
        for _ in range(count):
            value, at = self._value(at, kind)
            values.append(value)
        return values, at

    def _value(self, at: int, kind: int) -> tuple[Any, int]:
        if kind == STRING:
            return self._string(at)
        if kind == ARRAY:
            return self._array(at)
        if kind not in NUMBERS:
            raise ValueError(f"{self._path} is damaged: there is no value of type {kind}")
        (value,), at = self.elements(at, kind, 1)
        return value, at

    def _array(self, at: int) -> tuple[Any, int]:
        kind, count = struct.unpack_from("<IQ", self._data, at)
        at += 12
        self._check_room(count, 8 if kind in (STRING, ARRAY) else 1)
        if count <= MOST_KEPT:
            return self.elements(at, kind, count)
        array = LongArray(self._path, at, kind, count)
        if kind in NUMBERS:
            return array, at + count * struct.calcsize(f"<{NUMBERS[kind]}")
        if kind != STRING:
            return self.elements(at, kind, count)
        data, length_at = self._data, struct.Struct("<Q").unpack_from
        for _ in range(count):
            at += 8 + length_at(data, at)[0]
        return array, at

    def _string(self, at: int) -> tuple[str, int]:
        (length,) = struct.unpack_from("<Q", self._data, at)
        at += 8
        if length > len(self._data) - at:
            raise ValueError(f"{self._path} is cut short or damaged: a text goes beyond its end")
        return self._data[at : at + length].decode(errors="replace"), at + length

    def _check_room(self, count: int, least_bytes: int) -> None:
        if count * least_bytes > len(self._data):
            raise ValueError(f"{self._path} is cut short or damaged: it has no room for {count} entries")
