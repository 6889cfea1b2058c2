"""The models that transformers' code runs, and those that are refused, with the reason."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM, LlamaConfig, MambaConfig, MptConfig, PreTrainedConfig, T5Config

from engine.execution.model_runner import ModelRunner
from engine.models.transformers_model import IMPLEMENTATION, TransformersModel, _check_architecture
from engine.protocol.options import EngineConfig


def test_layer_shapes_come_from_the_model(tiny_core: Any) -> None:
    cache = tiny_core("gemma3").core.runner.kv_cache
    assert {i: (k.shape[1], k.shape[3]) for i, k in cache.keys.items()} == dict.fromkeys(range(3), (2, 12))


Llama: Any = LlamaConfig
"""It takes fields that its signature does not have."""


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (T5Config(), "encoder-decoder"),
        (Llama(num_hidden_layers=2, layer_types=["full_attention", "linear_attention"]), "linear_attention"),
        (Llama(num_kv_shared_layers=1), "share keys and values"),
    ],
)
def test_architectures_without_a_paged_form_are_refused(config: PreTrainedConfig, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        _check_architecture(config)


def test_a_model_without_the_attention_interface_is_refused() -> None:
    config = MambaConfig(vocab_size=50, hidden_size=16, state_size=4, num_hidden_layers=1)
    model = AutoModelForCausalLM.from_config(config)
    with pytest.raises(ValueError, match="MambaForCausalLM"):
        TransformersModel(model)


def test_a_model_that_cannot_be_loaded_with_our_attention_is_refused(tmp_path: Path) -> None:
    config = MptConfig(vocab_size=50, d_model=16, n_layers=1, n_heads=2, max_seq_len=64)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="AttentionInterface"):
        ModelRunner.load(EngineConfig(model=str(tmp_path), max_model_len=64))


def test_a_model_that_is_not_causal_is_refused(tiny_core: Any) -> None:
    model = tiny_core(model_impl="transformers").core.runner.model.model
    model.model.layers[0].self_attn.is_causal = False
    with pytest.raises(ValueError, match="not causal"):
        TransformersModel(model)


def test_a_model_s_own_eager_attention_is_not_used(tiny_core: Any) -> None:
    model = tiny_core(model_impl="transformers").core.runner.model.model
    assert model.config._attn_implementation == IMPLEMENTATION
