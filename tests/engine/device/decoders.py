"""Models of the decoder's family with random weights, and the logits that a runner computes for prompts."""

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from engine.execution.model_runner import ModelRunner
from engine.scheduling.sequence import ScheduledSequence, SequenceGroup
from tests.engine.conftest import SIZES, completion

SIZES = SIZES | {"initializer_range": 0.1}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 128}


LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


ALTERNATING: dict[str, Any] = {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 10}


FAMILY: dict[str, PreTrainedConfig] = {
    "llama": LlamaConfig(**SIZES),
    "llama with biases": LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    "llama without groups": LlamaConfig(**SIZES | {"num_key_value_heads": 4}),
    "llama 3.1": LlamaConfig(**SIZES, rope_parameters=LLAMA3),
    "llama, linear": LlamaConfig(
        **SIZES, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
    ),
    "mistral": MistralConfig(**SIZES, sliding_window=10),
    "mistral without window": MistralConfig(**SIZES, sliding_window=None),
    "qwen2": Qwen2Config(**{k: v for k, v in SIZES.items() if k != "head_dim"}),
    "qwen2 with windows": Qwen2Config(
        **{k: v for k, v in SIZES.items() if k != "head_dim"}, **ALTERNATING, use_sliding_window=True
    ),
    "qwen3": Qwen3Config(**SIZES),
    "qwen3 of 64": Qwen3Config(**SIZES | {"head_dim": 64}),
    "qwen3 of 128, tied": Qwen3Config(**SIZES | {"head_dim": 128, "tie_word_embeddings": True}),
    "qwen3, yarn": Qwen3Config(**SIZES | {"head_dim": 32}, rope_parameters=YARN),
}


def save(config: PreTrainedConfig, path: Path) -> Any:
    """Save a model with random weights in `path`. Returns it as transformers runs it."""
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for name, parameter in model.named_parameters():  # also those that begin as ones and zeros
        if "norm" in name or "bias" in name:
            torch.nn.init.normal_(parameter, float("norm" in name), 0.2)
    model.save_pretrained(path)
    return model


def logits_of(runner: ModelRunner, prompts: list[list[int]], cuts: list[int]) -> list[torch.Tensor]:
    """The logits at each prompt's end. A step computes all prompts up to the next cut."""
    group = SequenceGroup(completion(*map(tuple, prompts)))
    sequences = [
        group.add(p, max_tokens=1, detokenizer=None)  # type: ignore[arg-type]
        for p in prompts
    ]
    size = runner.kv_cache.block_size
    blocks = iter(torch.randperm(runner.kv_cache.num_blocks, generator=torch.manual_seed(0)).tolist())
    found: dict[int, torch.Tensor] = {}
    for seq in sequences:
        seq.cache.block_table += [next(blocks) for _ in range(-(-len(seq.token_ids) // size))]
    begin = 0
    for cut in [*cuts, 10_000]:
        step = [
            ScheduledSequence(s, begin, min(cut, s.num_tokens)) for s in sequences if begin < s.num_tokens
        ]
        logits, _ = runner.run(step)
        found |= dict(zip([s.sequence.index for s in step if s.is_sampled], logits, strict=True))
        begin = cut
    return [found[i] for i in range(len(prompts))]


def prompts_of(*lengths: int) -> list[list[int]]:
    return [torch.randint(4, 400, (n,), generator=torch.manual_seed(n)).tolist() for n in lengths]
