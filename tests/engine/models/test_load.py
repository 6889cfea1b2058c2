"""Choosing whose code runs a model, and whose kernels."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.device.kernels.cpu import native_library
from engine.execution.model_runner import ModelRunner
from engine.models.decoder import Decoder
from engine.models.transformers_model import TransformersModel
from engine.protocol.options import EngineConfig
from tests.engine.device.decoders import FAMILY, logits_of, prompts_of, save


def test_transformers_runs_a_checkpoint_with_unknown_tensors(tmp_path: Path) -> None:
    save(FAMILY["llama"], tmp_path)
    file = tmp_path / "model.safetensors"
    save_file(load_file(file) | {"model.layers.0.gate": torch.ones(1)}, file, metadata={"format": "pt"})
    assert isinstance(ModelRunner.load(EngineConfig(model=str(tmp_path))).model, TransformersModel)
    with pytest.raises(ValueError, match=r"model\.layers\.0\.gate"):
        ModelRunner.load(EngineConfig(model=str(tmp_path), model_impl="weir"))


def test_model_impl_chooses_the_code(tiny_model: Callable[[str], Any]) -> None:
    path = str(tiny_model("llama").path)
    chosen = {
        impl: ModelRunner.load(EngineConfig(model=path, model_impl=impl)).model
        for impl in ("auto", "transformers")
    }
    assert isinstance(chosen["auto"], Decoder)
    assert isinstance(chosen["transformers"], TransformersModel)
    with pytest.raises(ValueError, match="family"):
        ModelRunner.load(EngineConfig(model=str(tiny_model("gpt2").path), model_impl="weir"))


def test_only_torch_s_kernels_run_if_they_are_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    save(FAMILY["llama"], tmp_path)
    monkeypatch.setattr(native_library, "load", lambda dtype: pytest.fail("C was asked for"))
    config = EngineConfig(model=str(tmp_path), cpu_kernels="torch", quantization="int8")
    assert logits_of(ModelRunner.load(config), prompts_of(5), [])
