"""Which models are taken, and which are refused, and why."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GPTJConfig,
    LlamaConfig,
    MambaConfig,
    PreTrainedConfig,
    T5Config,
)

from engine.config import EngineConfig
from engine.execution.kv_cache import KVCache, LayerShape
from engine.execution.model_runner import ModelRunner, max_model_len_of
from engine.execution.models.transformers_model import IMPLEMENTATION, TransformersModel, _check_architecture


def test_layer_shapes_are_learnt_from_the_model(tiny_core: Any) -> None:
    cache = tiny_core("gemma3").core.runner.kv_cache
    assert {i: (k.shape[1], k.shape[3]) for i, k in cache.keys.items()} == dict.fromkeys(range(3), (2, 12))


def test_the_cache_takes_the_memory_that_it_is_given(tiny_core: Any) -> None:
    num_bytes = 2 * 2 * 2 * 12 * 4 * 16
    assert tiny_core(kv_cache_memory=10 * num_bytes + 1).core.runner.kv_cache.num_blocks == 10
    assert tiny_core(max_num_seqs=3).core.runner.kv_cache.num_blocks == 3 * 512 / 16
    with pytest.raises(ValueError, match="no room"):
        tiny_core(kv_cache_memory=10**15)
    with pytest.raises(ValueError, match="holds not one block"):
        tiny_core(kv_cache_memory=100)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (T5Config(), "encoder-decoder"),
        (
            LlamaConfig(num_hidden_layers=2, layer_types=["full_attention", "linear_attention"]),
            "linear_attention",
        ),
        (LlamaConfig(num_kv_shared_layers=1), "share keys and values"),
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


def test_a_model_that_cannot_even_be_loaded_with_our_attention_is_refused(tmp_path: Path) -> None:
    config = GPTJConfig(
        vocab_size=50, n_embd=16, n_layer=1, n_head=2, rotary_dim=4, bos_token_id=0, eos_token_id=0
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="AttentionInterface"):
        ModelRunner.load(EngineConfig(model=str(tmp_path)))


def test_longrope_is_served_up_to_where_it_would_depend_on_the_batch() -> None:
    config = LlamaConfig(
        max_position_embeddings=128,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "original_max_position_embeddings": 32,
            "long_factor": [1.0] * 64,
            "short_factor": [1.0] * 64,
        },
    )
    assert max_model_len_of(config, EngineConfig(model="m")) == 32
    with pytest.raises(ValueError, match="made for 32 tokens"):
        max_model_len_of(config, EngineConfig(model="m", max_model_len=64))


def test_a_model_that_is_not_causal_is_refused(tiny_core: Any) -> None:
    model = tiny_core(model_impl="transformers").core.runner.model.model
    model.model.layers[0].self_attn.is_causal = False
    with pytest.raises(ValueError, match="not causal"):
        TransformersModel(model)


def test_a_model_s_own_eager_attention_is_not_used(tiny_core: Any) -> None:
    model = tiny_core(model_impl="transformers").core.runner.model.model
    assert model.config._attn_implementation == IMPLEMENTATION


def test_what_is_written_is_what_is_gathered() -> None:
    device = torch.device("cpu")
    cache = KVCache({0: LayerShape(2, 3, 5)}, num_blocks=4, block_size=2, dtype=torch.bfloat16, device=device)
    keys, values = torch.randn(3, 2, 3).bfloat16(), torch.randn(3, 2, 5).bfloat16()
    cache.write(0, torch.tensor([6, 7, 2]), keys, values)
    k, v = cache.gather(0, torch.tensor([[3, 1]]))
    assert torch.equal(k[0, :, :3].transpose(0, 1), keys)
    assert torch.equal(v[0, :, :3].transpose(0, 1), values)
    assert not k[0, :, 3].any(), "what was never written is zero"
