"""Models with random weights to measure with: what they say is noise, but their time is that of the shape."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, Qwen3Config

from benchmarks.random_models import SHAPES, make_model
from engine.execution.probes.model_hash import model_hash
from engine.execution.probes.probe_file import Probe
from engine.protocol.demo import MODEL_DIR
from engine.protocol.probe_info import ProbeInfo
from engine.text.tokenizer import LocalTokenizer
from tools.demo.guards.model import GuardModel, save

TENTHS: dict[str, dict[str, Any]] = {
    "tiny": {
        "vocab_size": 2048,
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
    },
    "medium": {
        "vocab_size": 8192,
        "hidden_size": 256,
        "intermediate_size": 768,
        "num_hidden_layers": 16,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
    },
    "0.5b": {
        "vocab_size": 8192,
        "hidden_size": 512,
        "intermediate_size": 1536,
        "num_hidden_layers": 14,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 64,
    },
    "small": {
        "vocab_size": 8192,
        "hidden_size": 512,
        "intermediate_size": 1536,
        "num_hidden_layers": 18,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 64,
    },
}
"""By the shape of the served model: the shape of a guard with at most a tenth of its parameters."""

_TEMPLATE = """\
{%- set judged = 'USER' if messages[-1].role == 'user' else 'ASSISTANT' -%}
<|im_start|>user
# Task:
1. Say how safe the last {{ judged }} message is, with one of three levels.
2. Name the categories that the message falls into.

<BEGIN SAFETY POLICY>
<BEGIN UNSAFE CONTENT CATEGORIES>
Violent: how to hurt people, and praise of it.
Non-violent Illegal Acts: how to steal, deceive or break into what is not one's own.
Sexual Content: what is not fit for all readers.
PII: what tells who a private person is.
Self-Harm: how to hurt oneself, and praise of it.
Unethical Acts: contempt for people, and lies about them.
<END UNSAFE CONTENT CATEGORIES>
<END SAFETY POLICY>

<BEGIN CONVERSATION>

{% for message in messages -%}
{{ message.role | upper }}: {{ message.content }}

{% endfor -%}
<END CONVERSATION>

Answer in two lines. The first line is Safety: and one of Safe, Unsafe and Controversial. The second line is
Categories: and the names of categories, or None.<|im_end|>
<|im_start|>assistant
"""
"""In the form of Qwen3Guard-Gen's: the policy first, then the conversation, then the question."""


def make_served(shape: str, dtype: str, folder: Path) -> None:
    """Each token that it picks begins a word, as most tokens of a text do."""
    make_model(shape, dtype, folder)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tokenizer = LocalTokenizer.load(str(folder))
    head = tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"])
    known = tokenizer.fast.get_vocab_size()
    begins = [tokenizer.fast.decode([i])[:1] == " " for i in range(min(known, len(head)))]
    head[torch.tensor([i for i, one in enumerate(begins) if not one])] = 0
    save_file(tensors, path, {"format": "pt"})


def make_stream_guard(sizes: dict[str, Any], folder: Path, max_model_len: int = 8192) -> None:
    """In the shape of Qwen3Guard-Stream. `sizes`: its body."""
    torch.manual_seed(0)
    config = Qwen3Config(**sizes, max_position_embeddings=max_model_len, eos_token_id=None)
    save(GuardModel(config), AutoTokenizer.from_pretrained(MODEL_DIR), folder)


def make_judge(shape: str, dtype: str, folder: Path) -> None:
    """A generative guard that is asked as Qwen3Guard-Gen is."""
    make_model(shape, dtype, folder)
    (folder / "chat_template.jinja").write_text(_TEMPLATE)


def make_probe(model: Path, shape: str, path: Path, *more_layers: str) -> None:
    """A linear probe of the served model in `model`. It reads the output of the middle layer, and of
    `more_layers`."""
    sizes = SHAPES[shape]
    layers = (f"model.layers.{sizes['num_hidden_layers'] // 2}", *more_layers)
    width = len(layers) * sizes["hidden_size"]
    tensors = {
        "mean": torch.zeros(width),
        "scale": torch.ones(width),
        "weight": torch.zeros(1, width),
        "bias": torch.full((1,), -9.0),
    }
    info = ProbeInfo(name="made", kind="linear", labels=("harm",))
    Probe(info, layers, str(model), model_hash(str(model)), tensors).save(path)
