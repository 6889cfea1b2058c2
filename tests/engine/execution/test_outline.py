"""A model without weights is known by its files: its labels, its layers and its faults."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, MambaConfig, MptConfig, PreTrainedConfig

from engine.execution.outline import Outline
from engine.protocol.options import EngineConfig
from tests.engine.conftest import CONFIGS
from tests.engine.device.classifiers import GUARD_LABELS, GuardModel, save_guard
from tests.engine.execution.probes.made import make_probe, save_probe
from tests.engine.models.test_packed import AWQ, GPTQ, save_packed


def outline(folder: Path, **options: Any) -> Outline:
    return Outline(EngineConfig(model=str(folder), **options))


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_models_that_can_be_loaded_have_one(family: str, tiny_model: Callable[[str], Any]) -> None:
    model = tiny_model(family)
    found = outline(model.path)
    assert found.labels is None
    assert found.vocab_size == model.model.config.get_text_config().vocab_size


@pytest.mark.parametrize("quantization", [None, "int8", "int4"])
def test_it_has_the_labels_of_a_guard(quantization: Any, tmp_path: Path) -> None:
    save_guard(tmp_path)
    assert outline(tmp_path, quantization=quantization).labels == GUARD_LABELS


def test_it_reads_the_form_of_packed_weights(tmp_path: Path) -> None:
    save_packed(tmp_path / "awq", AWQ)
    assert outline(tmp_path / "awq" / "packed").labels is None
    save_packed(tmp_path / "gptq", GPTQ)  # the order of its inputs is in its numbers
    with pytest.raises(NotImplementedError):
        outline(tmp_path / "gptq" / "packed")


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ({"category_head.weight": None}, "tensor 'category_head.weight' is missing"),
        ({"model.norm.weight": None}, "tensor 'model.norm.weight' is missing"),
        ({"category_head.weight": "risk_level_head.weight"}, "gives 3 logits, and there are 8 labels"),
    ],
)
def test_it_misses_tensors_that_the_files_do_not_have(
    tensors: dict[str, Any], says: str, tmp_path: Path
) -> None:
    guard: GuardModel = save_guard(tmp_path)
    stored = load_file(guard.path / "model.safetensors")
    for name, other in tensors.items():
        taken = stored.pop(name)
        stored |= {} if other is None else {name: stored[other].clone()}
        assert taken is not None
    save_file(stored, guard.path / "model.safetensors")
    with pytest.raises(ValueError, match=says):
        outline(guard.path)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (MambaConfig(vocab_size=50, hidden_size=16, state_size=4, num_hidden_layers=1), "linear_attention"),
        (MptConfig(vocab_size=50, d_model=16, n_layers=1, n_heads=2, max_seq_len=64), "AttentionInterface"),
    ],
)
def test_a_model_that_cannot_be_served_is_told(config: PreTrainedConfig, says: str, tmp_path: Path) -> None:
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=says):
        outline(tmp_path, max_model_len=64)


def test_a_context_longer_than_the_model_s_is_told(tmp_path: Path) -> None:
    save_guard(tmp_path, max_position_embeddings=64)
    assert outline(tmp_path).max_model_len == 64
    with pytest.raises(ValueError, match="made for 64 tokens"):
        outline(tmp_path, max_model_len=65)


def test_it_has_the_probes_of_the_model(tiny_model: Callable[[str], Any], tmp_path: Path) -> None:
    folder = tiny_model(next(iter(CONFIGS))).path
    size = json.loads((folder / "config.json").read_text())["hidden_size"]
    probe = make_probe(folder, layers=("model.layers.0",), hidden_size=size)
    (info,) = outline(folder, probes=(save_probe(tmp_path, probe),)).probes()
    assert info.name == "made"
    other = make_probe(folder, layers=("model.layers.99",), hidden_size=size)
    with pytest.raises(ValueError, match=r"no layer model\.layers\.99"):
        outline(folder, probes=(save_probe(tmp_path, other),)).probes()
