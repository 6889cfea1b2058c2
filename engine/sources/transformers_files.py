"""Reads a model's files by transformers. Its import takes more than a second, and imports torch."""

from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from engine.sources.gguf_families import config_fields
from engine.sources.gguf_file import GgufFile
from engine.sources.model_config import FAMILY, ROPE_FREQUENCIES, ModelConfig
from engine.sources.one_process import leave_out_distributed


def read_config(path: Path, *, trust_remote_code: bool = False) -> PreTrainedConfig:
    """The configuration of a folder or a GGUF file. Raises `ValueError`, with what to do, for one that is not
    read, and `OSError` for a folder that is not a model's."""
    leave_out_distributed()
    config: PreTrainedConfig
    if not path.is_file():
        config = AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code)
        return config
    fields = config_fields(GgufFile(path))
    try:
        config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    except (ArithmeticError, AttributeError, TypeError, StrictDataclassError) as error:
        raise ValueError(f"{path} is damaged: its numbers make no model ({error})") from error
    return config


def read_tokenizer(path: Path, *, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder or a GGUF file. Raises as `read_config` does."""
    made: PreTrainedTokenizerBase
    if not path.is_file():
        made = AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code)
        return made
    try:
        made = PreTrainedTokenizerFast.from_pretrained(path.parent, gguf_file=path.name)
    except (ValueError, KeyError) as error:
        kind = GgufFile(path).metadata.get("tokenizer.ggml.model")
        raise ValueError(
            f"{path} has a tokenizer of the kind {kind!r} that transformers does not read ({error}): give the"
            " folder or hub name of one (--tokenizer)"
        ) from error
    return made


def rope_frequencies(config: ModelConfig) -> tuple[list[float], float]:
    """The angle by which each pair of a head's numbers turns from one position to the next, in float32, and
    the factor of sines and cosines."""
    compute = ROPE_INIT_FUNCTIONS[config.rope_parameters["rope_type"]]
    frequencies, scaling = compute(config, torch.device("cpu"))
    return frequencies.tolist(), scaling


def fields_of(config: PreTrainedConfig) -> dict[str, Any] | None:
    """All that Weir's own decoder reads of a configuration, for `KeptConfig`. None: the decoder does not know
    the model, or the configuration is wrong."""
    if config.model_type not in FAMILY:
        return None
    rope: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type", "default") == "default":
        return config.to_dict() | {ROPE_FREQUENCIES: None}
    try:
        return config.to_dict() | {ROPE_FREQUENCIES: rope_frequencies(config)}
    except (ArithmeticError, LookupError, TypeError, ValueError):  # the decoder says what is wrong
        return None
