"""A cheap hash of a checkpoint: a probe works only on the model that it was trained on."""

import hashlib
import json
from pathlib import Path

import torch
from safetensors import safe_open

from engine.models.checkpoint import safetensors_in
from engine.sources.names import located

IRRELEVANT = {"_name_or_path", "dtype", "torch_dtype", "transformers_version", "use_cache"}
"""Fields of `config.json` that do not change a model."""
NUM_READ = 1024
"""Numbers of each tensor that count. Training changes all of a model's tensors nearly everywhere."""


def model_hash(model: str) -> str:
    """SHA-256, as hex digits, of the model's configuration and of the beginnings of its tensors. `model` is a
    folder or a name on the hub. Raises `ValueError` for a model without safetensors files."""
    files = safetensors_in(located(model))
    if not files:
        raise ValueError(f"probes need a model in safetensors files, and {model} has none")
    digest = hashlib.sha256(_config(next(iter(files.values())).parent))
    for path in sorted({*files.values()}):
        with safe_open(path, "pt") as file:
            for name in sorted(name for name in files if files[name] == path):
                tensor = file.get_slice(name)
                shape = tensor.get_shape()
                digest.update(f"{name} {tensor.get_dtype()} {shape}".encode())
                if shape:
                    row = tensor[:1] if len(shape) > 1 else tensor[:NUM_READ]
                    digest.update(row.flatten()[:NUM_READ].view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _config(folder: Path) -> bytes:
    config = json.loads((folder / "config.json").read_text())
    kept = {name: value for name, value in config.items() if name not in IRRELEVANT}
    return json.dumps(kept, sort_keys=True).encode()
