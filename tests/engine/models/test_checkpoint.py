"""Checkpoints in one file and in several."""

import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from engine.execution.model_runner import ModelRunner
from engine.protocol.options import EngineConfig
from tests.engine.device.decoders import FAMILY, logits_of, prompts_of, save


def test_a_checkpoint_in_several_files_is_read(tmp_path: Path) -> None:
    save(FAMILY["llama"], tmp_path / "one")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "one")
    model.save_pretrained(tmp_path / "many", max_shard_size="50KB")
    index = json.loads((tmp_path / "many/model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 2
    logits = [
        logits_of(
            ModelRunner.load(EngineConfig(model=str(tmp_path / name), model_impl="weir")), prompts_of(20), []
        )[0]
        for name in ("one", "many")
    ]
    assert torch.equal(*logits)
