"""Files of probes: safetensors, with the probe's description as JSON in the metadata `weir_probe`.

    {"version": 1, "name": "harm", "kind": "linear", "labels": ["harm"], "layers": ["model.layers.12"],
     "model": "Qwen/Qwen3-8B", "model_hash": "9f...", "calibration": {"threshold": 1.5, ...}}

The input of a probe is the outputs of its layers, one after another: `inputs` numbers for each token. A
layer has the name that transformers gives its module, such as `model.layers.12` or `model.norm`. Each input
is first made `(input - mean) / scale`. All tensors are float32. Matrices are `[out, in]`, as torch has them:

| kind | tensors |
|---|---|
| all | `mean` [inputs], `scale` [inputs] |
| linear | `weight` [labels, inputs], `bias` [labels] |
| mlp | `hidden.weight` [units, inputs], `hidden.bias` [units]; ReLU; `weight` [labels, units], `bias` |
| attention | `query.weight` [1, inputs], `query.bias` [1], `weight` [labels, inputs], `bias` |

The outputs are logits. `ProbeInfo.score_names` says how those of an attention probe become one.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Literal

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from engine.protocol.probe_info import Calibration, ProbeInfo, ProbeKind

METADATA = "weir_probe"
VERSION = 1
NAME = re.compile(r"[\w-]+", re.ASCII)


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    info: ProbeInfo
    layers: tuple[str, ...]
    """The modules whose outputs it reads, in the order of its inputs."""
    model: str
    """The model that it was trained on, for messages."""
    model_hash: str
    """`engine.execution.probes.model_hash` of this model."""
    tensors: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        """Raises `ValueError` for a probe whose parts do not fit together."""
        info = self.info
        check_name(info.name)
        if not all(info.labels) or not info.labels or len({*info.labels}) < len(info.labels):
            raise ValueError("its labels must be one or more, all different, and none empty")
        if info.calibration and not (isfinite(info.calibration.threshold) and info.calibration.span >= 1):
            raise ValueError("its calibration must have a finite threshold and a span of 1 or more")
        if not self.layers or len({*self.layers}) < len(self.layers):
            raise ValueError("its layers must be one or more, all different")
        for name, shape in self._shapes().items():
            tensor = self.tensors[name]
            if tensor.shape != shape:
                raise ValueError(f"its tensor {name} is {[*tensor.shape]} and must be {[*shape]}")
            if tensor.dtype != torch.float32 or not tensor.isfinite().all():
                raise ValueError(f"its tensor {name} must have finite numbers of type float32")
        if not (self.tensors["scale"] > 0).all():
            raise ValueError("its tensor scale must be positive")

    @property
    def num_inputs(self) -> int:
        return len(self.tensors["mean"])

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all. A program that reads it meanwhile reads the file that was
        there before. Raises `OSError`."""
        info = asdict(self.info)
        header = {"version": VERSION, **info, "layers": self.layers, "model": self.model}
        metadata = {METADATA: json.dumps({**header, "model_hash": self.model_hash})}
        tensors = {name: tensor.contiguous() for name, tensor in self.tensors.items()}
        data = to_bytes(tensors, metadata)
        check_place(path)
        place = path.resolve()  # a link stays a link
        new = place.with_name(f".{place.name}.{os.getpid()}")
        try:
            new.write_bytes(data)
            new.replace(place)
        finally:
            new.unlink(missing_ok=True)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Raises `ValueError` for tensors that are not those of the kind."""
        num_labels = len(self.info.labels)
        names = {"mean", "scale", "weight", "bias", *_MORE_TENSORS[self.info.kind]}
        if self.tensors.keys() != names:
            raise ValueError(f"its tensors must be {', '.join(sorted(names))}")
        inputs = self.tensors["mean"].numel()
        shapes: dict[str, tuple[int, ...]] = {"mean": (inputs,), "scale": (inputs,)}
        shapes |= {"weight": (num_labels, inputs), "bias": (num_labels,)}
        if self.info.kind == "mlp":
            units = self.tensors["hidden.bias"].numel()
            shapes |= {"hidden.weight": (units, inputs), "hidden.bias": (units,)}
            shapes["weight"] = (num_labels, units)
        if self.info.kind == "attention":
            shapes |= {"query.weight": (1, inputs), "query.bias": (1,)}
        return shapes


def check_name(name: str) -> None:
    """Raises `ValueError` for a name that no probe can have."""
    if not NAME.fullmatch(name):
        raise ValueError("its name may have letters, digits, _ and - only")


def check_place(path: Path) -> None:
    """Make the file's folder if needed. Raises `OSError` for a path that no probe can be written to,
    such as a folder or a device."""
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is not a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"{path.parent} is not writable")


def load_probe(path: Path | str) -> Probe:
    """Raises `ValueError`, naming the file, if it is not a probe, and `OSError` if it cannot be read."""
    try:
        with safe_open(path, "pt") as file:
            # Copies: a tensor of a file changes with the file, which `weir probe` may write anew.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (no mapping)
            header = _HEADER.validate_json((file.metadata() or {}).get(METADATA, "null"))
        info = ProbeInfo(
            name=header.name, kind=header.kind, labels=header.labels, calibration=header.calibration
        )
        return Probe(info, header.layers, header.model, header.model_hash, tensors)
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file: {error}") from error
    except ValidationError as error:
        fields = ", ".join(".".join(map(str, one["loc"])) or METADATA for one in error.errors())
        raise ValueError(f"{path} is not a probe: its metadata is wrong at {fields}") from error
    except ValueError as error:
        raise ValueError(f"{path} is not a usable probe: {error}") from error


_MORE_TENSORS: Mapping[ProbeKind, tuple[str, ...]] = {
    "linear": (),
    "mlp": ("hidden.weight", "hidden.bias"),
    "attention": ("query.weight", "query.bias"),
}


@checked_dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class _Header:
    version: Literal[1]
    name: str
    kind: ProbeKind
    labels: tuple[str, ...]
    layers: tuple[str, ...]
    model: str
    model_hash: str
    calibration: Calibration | None = None


_HEADER = TypeAdapter(_Header)
