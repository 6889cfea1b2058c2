"""The hash that tells checkpoints apart."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.execution.probes.model_hash import model_hash
from engine.sources.gguf_file import GgufFile
from tests.engine.gguf_files import Kind, write_gguf


@pytest.fixture
def folder(tmp_path: Path, tiny_model: Callable[[str], Any]) -> Path:
    return Path(shutil.copytree(tiny_model("qwen3").path, tmp_path / "model"))


def changed_config(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_where_a_model_lies_and_who_saved_it_changes_nothing(
    folder: Path, tiny_model: Callable[[str], Any]
) -> None:
    changed_config(folder, transformers_version="0", _name_or_path="elsewhere")
    assert model_hash(str(folder)) == model_hash(str(tiny_model("qwen3").path))


def test_another_configuration_is_another_model(folder: Path, tiny_model: Callable[[str], Any]) -> None:
    changed_config(folder, rms_norm_eps=0.5)
    assert model_hash(str(folder)) != model_hash(str(tiny_model("qwen3").path))


@pytest.mark.parametrize("name", ["model.layers.1.self_attn.q_proj.weight", "model.norm.weight"])
def test_a_model_that_was_trained_on_is_another_model(
    folder: Path, tiny_model: Callable[[str], Any], name: str
) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors[name] = tensors[name] + 1e-3 * torch.ones_like(tensors[name])
    save_file(tensors, folder / "model.safetensors")
    assert model_hash(str(folder)) != model_hash(str(tiny_model("qwen3").path))


def test_a_model_without_safetensors_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="probes need a model in safetensors files"):
        model_hash(str(folder))


def test_a_gguf_file_is_known_by_its_tensors_and_not_by_its_place_or_name(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("one.gguf", "moved.gguf", "retrained.gguf")]
    for path, metadata in zip(paths, ({}, {"general.name": "another"}, {}), strict=True):
        write_gguf(path, "llama", Kind.Q8_0, metadata=metadata)
    one, moved, retrained = paths
    tensor = GgufFile(retrained).tensors["blk.1.attn_q.weight"]
    data = bytearray(retrained.read_bytes())
    data[tensor.offset + 5] ^= 1
    retrained.write_bytes(data)
    assert model_hash(str(one)) == model_hash(str(moved))
    assert model_hash(str(one)) != model_hash(str(retrained))
