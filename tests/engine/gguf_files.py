"""Small GGUF files of random models, written as llama.cpp's converter writes them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import MODEL_ARCH_NAMES, GGMLQuantizationType, GGUFWriter, TokenType, get_tensor_name_map, quants
from numpy.typing import NDArray
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GraniteConfig,
    LlamaConfig,
    Phi3Config,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)
from transformers.convert_slow_tokenizer import bytes_to_unicode

Kind = GGMLQuantizationType

NUM_LAYERS = 6
"""So many that one layer of Gemma 3 sees the whole text."""
WORDS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *bytes_to_unicode().values(), "he", "ll", "hell"]
VOCAB_SIZE = 288
"""More than there are tokens, as in most models."""
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": NUM_LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
NO_HEAD_DIM = {name: value for name, value in SIZES.items() if name != "head_dim"}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FACTORS = [1.0 + i / 8 for i in range(8)]
CONFIGS: dict[str, tuple[str, PreTrainedConfig]] = {
    "llama": ("llama", LlamaConfig(**SIZES)),
    "llama, tied": ("llama", LlamaConfig(**SIZES, tie_word_embeddings=True)),
    "llama with biases": ("llama", LlamaConfig(**SIZES, attention_bias=True)),
    "llama 3.1": ("llama", LlamaConfig(**SIZES, rope_parameters=LLAMA3)),
    "llama, linear": (
        "llama",
        LlamaConfig(**SIZES, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}),
    ),
    "qwen2": ("qwen2", Qwen2Config(**NO_HEAD_DIM)),
    "qwen3": ("qwen3", Qwen3Config(**SIZES)),
    "qwen3, yarn": ("qwen3", Qwen3Config(**SIZES, rope_parameters=YARN)),
    "smollm3": ("smollm3", SmolLM3Config(**NO_HEAD_DIM)),
    "granite": (
        "granite",
        GraniteConfig(
            **NO_HEAD_DIM,
            attention_multiplier=0.2,
            embedding_multiplier=3.0,
            residual_multiplier=0.5,
            logits_scaling=2.0,
        ),
    ),
    "phi3": ("phi3", Phi3Config(**NO_HEAD_DIM, sliding_window=20)),
    "phi3, longrope": (
        "phi3",
        Phi3Config(
            **NO_HEAD_DIM,
            original_max_position_embeddings=64,
            rope_parameters={
                "rope_type": "longrope",
                "rope_theta": 1e4,
                "short_factor": FACTORS,
                "long_factor": FACTORS[::-1],
            },
        ),
    ),
    "gemma2": ("gemma2", Gemma2Config(**SIZES, sliding_window=20, query_pre_attn_scalar=32)),
    "gemma3": ("gemma3", Gemma3TextConfig(**SIZES, sliding_window=20, query_pre_attn_scalar=32)),
}
"""The architecture in GGUF, and the configuration, by name."""


def random_model(config: PreTrainedConfig) -> Any:
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter += 0.2 * torch.randn(parameter.shape)
            elif "bias" in name:
                torch.nn.init.normal_(parameter, 0, 0.2)
    return model


def write_gguf(
    path: Path,
    name: str,
    kind: Kind = Kind.F32,
    *,
    kinds: Mapping[str, Kind] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Any:
    """Write a random model of `CONFIGS`. Its matrices have the type `kind`, or that of `kinds` by the name in
    GGUF without its layer, such as `attn_v`. Returns the model, with the weights that the file stands for.

    `metadata`: other values by key. None: the key is left out.
    """
    architecture, config = CONFIGS[name]
    model = random_model(config)
    writer = GGUFWriter(path, architecture)
    fields = _fields(architecture, config) | _tokenizer() | dict(metadata or {})
    for key, value in fields.items():
        _add(writer, key, value)
    if config.rope_parameters.get("rope_type") == "llama3":
        factors = 1e4 ** -(torch.arange(0, 32, 2) / 32) / model.model.rotary_emb.inv_freq
        writer.add_tensor("rope_freqs.weight", factors.numpy())
    if config.rope_parameters.get("rope_type") == "longrope":
        for which in ("short", "long"):
            factors = np.array(config.rope_parameters[f"{which}_factor"], np.float32)
            writer.add_tensor(f"rope_factors_{which}.weight", factors)
    number = next(key for key, value in MODEL_ARCH_NAMES.items() if value == architecture)
    names = get_tensor_name_map(number, config.num_hidden_layers)
    stored: dict[str, torch.Tensor] = {}
    for name_in_model, tensor in model.state_dict().items():
        if name_in_model == "lm_head.weight" and config.tie_word_embeddings:
            continue
        gguf_name = names.get_name(name_in_model, (".weight", ".bias"))
        assert gguf_name is not None
        part = gguf_name.split(".")[-2]
        one = (kinds or {}).get(part, kind) if tensor.ndim == 2 else Kind.F32
        values = _converted(name_in_model, tensor.numpy(), architecture, config)
        packed = quants.quantize(values, one)
        writer.add_tensor(gguf_name, packed, raw_dtype=one)
        exact = quants.dequantize(packed, one)
        stored[name_in_model] = torch.from_numpy(_restored(name_in_model, exact, architecture, config).copy())
    model.load_state_dict(stored, strict=False)
    model.tie_weights()
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif value is not None:
        writer.add_array(key, value)


def _fields(architecture: str, config: Any) -> dict[str, Any]:
    rope = config.rope_parameters
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    fields: dict[str, Any] = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.freq_base": rope.get("full_attention", rope)["rope_theta"],
    }
    if head_dim * config.num_attention_heads != config.hidden_size:
        fields |= {"attention.key_length": head_dim, "attention.value_length": head_dim}
    if architecture in ("llama", "phi3", "smollm3", "granite"):
        fields |= {"rope.dimension_count": head_dim}
    if rope.get("rope_type") in ("linear", "yarn"):
        fields |= {"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": rope["factor"]}
    if rope.get("rope_type") in ("yarn", "longrope"):
        fields |= {"rope.scaling.original_context_length": rope["original_max_position_embeddings"]}
    if architecture in ("gemma2", "gemma3", "phi3"):
        fields |= {"attention.sliding_window": config.sliding_window}
    if architecture == "granite":
        fields |= {
            "attention.scale": config.attention_multiplier,
            "embedding_scale": config.embedding_multiplier,
            "residual_scale": config.residual_multiplier,
            "logit_scale": config.logits_scaling,
        }
    return {f"{architecture}.{key}": value for key, value in fields.items()}


TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _tokenizer() -> dict[str, Any]:
    control = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": WORDS,
        "tokenizer.ggml.token_type": [
            int(TokenType.CONTROL if word in control else TokenType.NORMAL) for word in WORDS
        ],
        "tokenizer.ggml.merges": ["h e", "l l", "he ll"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }


def _converted(name: str, values: NDArray[Any], architecture: str, config: Any) -> NDArray[Any]:
    """As llama.cpp's converter changes a tensor (`LlamaModel.permute`, `Gemma2Model.modify_tensors`)."""
    if architecture.startswith("gemma") and name.endswith("norm.weight"):
        return values + 1
    heads = _heads(name, architecture, config)
    if heads is None:
        return values
    return values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def _restored(name: str, values: NDArray[Any], architecture: str, config: Any) -> NDArray[Any]:
    if architecture.startswith("gemma") and name.endswith("norm.weight"):
        return values - 1
    heads = _heads(name, architecture, config)
    if heads is None:
        return values
    return values.reshape(heads, -1, 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def _heads(name: str, architecture: str, config: Any) -> int | None:
    """The heads of a tensor whose rows the converter permutes."""
    if architecture in ("llama", "smollm3", "granite"):
        if "q_proj" in name:
            return int(config.num_attention_heads)
        if "k_proj" in name:
            return int(config.num_key_value_heads)
    return None
