"""Models with random weights: a Qwen3 of 19M parameters (`tiny`) or 150M (`medium`), and the shapes of
Qwen2.5-0.5B (`0.5b`), of Qwen3-0.6B (`small`), and of two layers of Qwen3-8B (`8b-layers`)."""

import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, Qwen3Config

from engine.protocol.demo import MODEL_DIR
from engine.text.tokenizer import LocalTokenizer

SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {
        "vocab_size": 8192,
        "hidden_size": 384,
        "intermediate_size": 1024,
        "num_hidden_layers": 8,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "tie_word_embeddings": False,
    },
    "medium": {
        "vocab_size": 32768,
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_hidden_layers": 20,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "tie_word_embeddings": True,
    },
    "0.5b": {
        "vocab_size": 151936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "tie_word_embeddings": True,
    },
    "small": {
        "vocab_size": 151936,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "tie_word_embeddings": True,
    },
    "8b-layers": {
        "vocab_size": 8192,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 2,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "tie_word_embeddings": True,
    },
}


def make_model(shape: str, dtype: str, folder: Path) -> None:
    torch.manual_seed(0)
    config = Qwen3Config(**SHAPES[shape], max_position_embeddings=32768, eos_token_id=None)
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(MODEL_DIR / file, folder)
    model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    _mute_tokens_without_text(model.lm_head.weight.data, LocalTokenizer.load(str(folder)))
    model.save_pretrained(folder)


def _mute_tokens_without_text(head: torch.Tensor, tokenizer: LocalTokenizer) -> None:
    """Let every token that the model picks have a text of its own. `head`: `[vocab, hidden]`.

    A token that ends inside a character waits for the next tokens. Random weights pick many such tokens, and
    then the gaps between texts measure luck. Greedy choice never takes a logit of 0 from random ones.
    """
    texts = tokenizer.fast.decode_batch([[token_id] for token_id in range(len(head))])
    is_muted = [not text or "\N{REPLACEMENT CHARACTER}" in text for text in texts]
    head[torch.tensor(is_muted)] = 0
