"""A cheap hash of a checkpoint: a probe works only on the model that it was trained on."""

import hashlib
import json
from pathlib import Path

import torch
from safetensors import safe_open

from engine.models.checkpoint import safetensors_in
from engine.sources.gguf_file import GgufFile, LongArray
from engine.sources.names import located

IRRELEVANT = {"_name_or_path", "dtype", "torch_dtype", "transformers_version", "use_cache"}
"""Fields of `config.json` that do not change a model."""
NUM_READ = 1024
"""Numbers of each tensor that count, bytes in a GGUF file. Training changes all tensors nearly everywhere."""


NOT_OF_MODEL = ("general.name", "general.url", "general.source", "general.repo", "quantize.", "split.")
"""Beginnings of the keys of a GGUF file that do not change a model."""


def model_hash(model: str) -> str:
    """SHA-256, as hex digits, of the model's configuration and of the beginnings of its tensors. `model` is a
    folder, a GGUF file, or a name of either that `located` knows. The same weights in another format are
    another model: their numbers are rounded otherwise.

    Raises `ValueError` for a folder without safetensors files, and for a file that is not a GGUF file.
    """
    path = located(model)
    if path.is_file():
        return _hash_of_file(GgufFile(path))
    files = safetensors_in(path)
    if not files:
        raise ValueError(f"probes need a model in safetensors files or a GGUF file, and {model} has none")
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


def _hash_of_file(file: GgufFile) -> str:
    kept = {
        key: len(value) if isinstance(value, LongArray) else value
        for key, value in file.metadata.items()
        if not key.startswith(NOT_OF_MODEL)
    }
    digest = hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode())
    for name, tensor in sorted(file.tensors.items()):
        digest.update(f"{name} {tensor.kind} {tensor.shape}".encode())
        with tensor.path.open("rb") as stored:
            stored.seek(tensor.offset)
            digest.update(stored.read(min(NUM_READ, tensor.num_bytes)))
    return digest.hexdigest()


def _config(folder: Path) -> bytes:
    config = json.loads((folder / "config.json").read_text())
    kept = {name: value for name, value in config.items() if name not in IRRELEVANT}
    return json.dumps(kept, sort_keys=True).encode()
