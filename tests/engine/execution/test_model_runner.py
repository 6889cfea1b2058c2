"""Which models are taken, and which are refused, and why."""

from typing import Any

import pytest
from transformers import LlamaConfig

from engine.execution.model_runner import max_model_len_of
from engine.protocol.options import EngineConfig


def test_the_cache_takes_the_memory_that_it_is_given(tiny_core: Any) -> None:
    num_bytes = 2 * 2 * 2 * 12 * 4 * 16
    assert tiny_core(kv_cache_memory=10 * num_bytes + 1).core.runner.kv_cache.num_blocks == 10
    assert tiny_core(max_num_seqs=3).core.runner.kv_cache.num_blocks == 3 * 512 / 16
    with pytest.raises(ValueError, match="does not fit"):
        tiny_core(kv_cache_memory=10**15)
    with pytest.raises(ValueError, match="holds not one block"):
        tiny_core(kv_cache_memory=100)


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
