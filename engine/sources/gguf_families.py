"""The architectures of GGUF files that Weir reads: the configuration of each, in transformers' form.

The keys are those of the package `gguf` (`gguf.constants.Keys`), and what llama.cpp's converter
(`convert_hf_to_gguf.py`) does to a checkpoint is undone: here for numbers of the configuration, and in
`engine.models.gguf_checkpoint` for tensors.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.sources.gguf_file import GgufFile

Fields = dict[str, Any]
DTYPE = "bfloat16"
"""The type that a model computes in, and that weights without a kernel are unpacked to."""
MISSING = object()
BY_LAYER = ("attention.head_count", "attention.head_count_kv", "feed_forward_length")
"""Keys that may have a number for each layer."""


class Keys:
    """The metadata under the architecture's own name."""

    def __init__(self, file: GgufFile) -> None:
        self.file = file

    def get(self, key: str, default: Any = MISSING) -> Any:
        """Raises `ValueError` for a missing key that has no default, and for one number for each layer."""
        name = f"{self.file.architecture}.{key}"
        found = self.file.metadata.get(name, default)
        if found is MISSING:
            raise ValueError(f"{self.file.path} does not say {name}")
        if isinstance(found, list) and found and key in BY_LAYER:
            if len(set(found)) != 1:
                raise ValueError(f"{self.file.path} has layers of different sizes ({name})")
            return found[0]
        return found


@dataclass(frozen=True, slots=True)
class Family:
    model_type: str
    """The value of `model_type` in transformers' configurations."""
    fields: Callable[[Keys], Fields]
    """The fields that not all families have."""
    permutes_heads: bool = False
    """Whether the rows of queries and keys lie in the order that llama.cpp rotates them in."""
    norm_offset: float = 0.0
    """A number that the converter adds to the weights of norms."""


def config_fields(file: GgufFile) -> Fields:
    """The fields of a transformers configuration, `model_type` included. Raises `ValueError`, with what to
    do, for a file that cannot be served."""
    family, keys = family_of(file), Keys(file)
    if keys.get("expert_count", 0):
        raise _unreadable(file, f"a mixture of experts ({file.architecture})")
    heads = int(keys.get("attention.head_count"))
    return {
        "model_type": family.model_type,
        "dtype": DTYPE,
        "vocab_size": _vocab_size(file),
        "hidden_size": keys.get("embedding_length"),
        "intermediate_size": keys.get("feed_forward_length"),
        "num_hidden_layers": keys.get("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": keys.get("attention.head_count_kv", heads),
        "head_dim": _head_dim(keys),
        "max_position_embeddings": keys.get("context_length"),
        "rms_norm_eps": keys.get("attention.layer_norm_rms_epsilon"),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "bos_token_id": file.metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": file.metadata.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": file.metadata.get("tokenizer.ggml.padding_token_id"),
    } | family.fields(keys)


def family_of(file: GgufFile) -> Family:
    """Raises `ValueError`, with what to do, for an architecture that is not read."""
    if file.architecture not in FAMILIES:
        raise _unreadable(file, f"of the architecture {file.architecture!r}")
    return FAMILIES[file.architecture]


def _unreadable(file: GgufFile, what: str) -> ValueError:
    return ValueError(
        f"{file.path} is {what}. Of GGUF files, Weir reads the architectures {', '.join(FAMILIES)}. Serve the"
        " model's folder or hub name instead, or run the file in llama.cpp or Ollama and put Weir in front"
        " (--engine openai --upstream URL)"
    )


def _vocab_size(file: GgufFile) -> int:
    if "token_embd.weight" not in file.tensors:
        raise ValueError(f"{file.path} has no tensor token_embd.weight: it is not a whole model")
    rows = file.tensors["token_embd.weight"].shape[0]
    tokens = file.metadata.get("tokenizer.ggml.tokens", ())
    if len(tokens) > rows:
        raise ValueError(f"{file.path} has {len(tokens)} tokens and embeddings for {rows}")
    return rows


def _head_dim(keys: Keys) -> int:
    width = keys.get("embedding_length") // keys.get("attention.head_count")
    key_length = keys.get("attention.key_length", width)
    if keys.get("attention.value_length", key_length) != key_length:
        raise ValueError(f"{keys.file.path} has keys and values of different lengths, which cannot be served")
    return int(key_length)


def _rope(keys: Keys) -> Fields:
    theta = {"rope_theta": keys.get("rope.freq_base", 10_000.0)}
    scaling = keys.get("rope.scaling.type", "none")
    factor = keys.get("rope.scaling.factor", keys.get("rope.scale_linear", 1.0))
    if (factors := keys.file.floats("rope_freqs.weight")) is not None:
        # Llama 3's frequencies, as the converter computed them. Transformers' name for frequencies that are
        # divided one by one is longrope.
        length = {"original_max_position_embeddings": keys.get("context_length"), "attention_factor": 1.0}
        return theta | length | {"rope_type": "longrope", "short_factor": factors, "long_factor": factors}
    if scaling == "yarn":
        fields = {"rope_type": "yarn", "factor": factor}
        names = {
            "original_max_position_embeddings": "rope.scaling.original_context_length",
            "beta_fast": "rope.scaling.yarn_beta_fast",
            "beta_slow": "rope.scaling.yarn_beta_slow",
        }
        given = {name: keys.get(key, None) for name, key in names.items()}
        return theta | fields | {name: value for name, value in given.items() if value is not None}
    if scaling == "linear" or (scaling == "none" and factor != 1.0):
        return theta | {"rope_type": "linear", "factor": factor}
    if scaling != "none":
        raise ValueError(f"{keys.file.path} has positions of the kind {scaling!r}, which cannot be served")
    return theta | {"rope_type": "default"}


def _rotates_whole_heads(keys: Keys) -> Fields:
    if keys.get("rope.dimension_count", _head_dim(keys)) != _head_dim(keys):
        raise ValueError(f"{keys.file.path} rotates a part of each head, which cannot be served")
    return {"rope_parameters": _rope(keys)}


def _llama(keys: Keys) -> Fields:
    biases = {
        "attention_bias": "blk.0.attn_q.bias" in keys.file.tensors,
        "mlp_bias": "blk.0.ffn_down.bias" in keys.file.tensors,
    }
    return _rotates_whole_heads(keys) | biases


def _granite(keys: Keys) -> Fields:
    return _llama(keys) | {
        "attention_multiplier": keys.get("attention.scale"),
        "embedding_multiplier": keys.get("embedding_scale"),
        "residual_multiplier": keys.get("residual_scale"),
        "logits_scaling": keys.get("logit_scale"),
    }


def _phi3(keys: Keys) -> Fields:
    """Microsoft's Phi 3 and 4. Its longrope has factors for short texts and for long ones."""
    share = keys.get("rope.dimension_count", _head_dim(keys)) / _head_dim(keys)
    short, long = map(keys.file.floats, ("rope_factors_short.weight", "rope_factors_long.weight"))
    original = keys.get("rope.scaling.original_context_length", keys.get("context_length"))
    if short and long:
        theta = {"rope_theta": keys.get("rope.freq_base", 10_000.0), "rope_type": "longrope"}
        rope = theta | {
            "short_factor": short,
            "long_factor": long,
            "original_max_position_embeddings": original,
        }
        if (attention_factor := keys.get("rope.scaling.attn_factor", None)) is not None:
            rope["attention_factor"] = attention_factor
    else:
        rope = _rope(keys)
    return {
        "rope_parameters": rope | {"partial_rotary_factor": share},
        "original_max_position_embeddings": original,
        "sliding_window": keys.get("attention.sliding_window", None) or None,
    }


GEMMA_27B = {"gemma2": 46, "gemma3": 62}
"""Layers of the models whose queries are scaled by the width of a head in the hidden size, as llama.cpp tells
them apart. Other models scale by the length of a key."""


def _gemma(keys: Keys) -> Fields:
    is_27b = keys.get("block_count") == GEMMA_27B[keys.file.architecture]
    heads = keys.get("attention.head_count")
    return {
        "query_pre_attn_scalar": keys.get("embedding_length") // heads if is_27b else _head_dim(keys),
        "sliding_window": keys.get("attention.sliding_window"),
    }


def _gemma2(keys: Keys) -> Fields:
    return {
        **_gemma(keys),
        "rope_parameters": _rope(keys),
        "attn_logit_softcapping": keys.get("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": keys.get("final_logit_softcapping", 30.0),
    }


def _gemma3(keys: Keys) -> Fields:
    """Every sixth layer sees the whole text. The others have positions of their own, without scaling."""
    theta_of_window = keys.get("rope.freq_base_swa", 10_000.0)
    return {
        **_gemma(keys),
        "rope_parameters": {
            "full_attention": _rope(keys),
            "sliding_attention": {"rope_type": "default", "rope_theta": theta_of_window},
        },
        "layer_types": [
            "sliding_attention" if (i + 1) % 6 else "full_attention" for i in range(keys.get("block_count"))
        ],
        "final_logit_softcapping": keys.get("final_logit_softcapping", None),
    }


FAMILIES = {
    "llama": Family("llama", _llama, permutes_heads=True),
    "qwen2": Family("qwen2", _rotates_whole_heads),
    "qwen3": Family("qwen3", _rotates_whole_heads),
    "smollm3": Family("smollm3", _llama, permutes_heads=True),
    "granite": Family("granite", _granite, permutes_heads=True),
    "phi3": Family("phi3", _phi3),
    "gemma2": Family("gemma2", _gemma2, norm_offset=1.0),
    "gemma3": Family("gemma3_text", _gemma3, norm_offset=1.0),
}
"""By the value of `general.architecture`. Mistral's and SmolLM2's files have Llama's."""
