"""All of a model but its weights: configuration, tokenizer, and the tokens that end an answer."""

import logging
from pathlib import Path

from huggingface_hub.errors import StrictDataclassError
from transformers import (
    AutoConfig,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from engine.sources.gguf_families import config_fields
from engine.sources.gguf_file import GgufFile
from engine.sources.names import located
from engine.sources.one_process import leave_out_distributed

logger = logging.getLogger("weir.engine")

END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
END_TEXTS = frozenset(
    {
        "<|eot_id|>",
        "<|eom_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|end_of_text|>",
        "<|endoftext|>",
        "<end_of_turn>",
        "<EOT>",
        "_<EOT>",
    }
)
"""Names of tokens that end an answer, as in llama.cpp's `llama_vocab`: a GGUF file itself names one."""


def config_of(model: str, *, trust_remote_code: bool = False) -> PreTrainedConfig:
    """Raises `ValueError`, with what to do, for a model that is not found or not read, and `OSError` for a
    folder that is not a model's."""
    leave_out_distributed()
    path = located(model, with_weights=False)
    if path.is_file():
        return _gguf_config(GgufFile(path))
    config: PreTrainedConfig = AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code)
    return config


def eos_token_ids_of(model: str, config: PreTrainedConfig) -> frozenset[int]:
    """The ids that end an answer."""
    path = located(model, with_weights=False)
    if path.is_file():
        return _end_ids(GgufFile(path))
    try:
        ids = GenerationConfig.from_pretrained(path).eos_token_id
    except OSError:  # the model has no generation configuration
        ids = config.get_text_config().eos_token_id
    return frozenset(() if ids is None else [ids] if isinstance(ids, int) else ids)


def tokenizer_of(model: str, *, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """Raises `ValueError` and `OSError` as `config_of` does."""
    path = located(model, with_weights=False)
    if path.is_file():
        return _gguf_tokenizer(path)
    made: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code)
    return made


def _gguf_config(file: GgufFile) -> PreTrainedConfig:
    try:
        fields = config_fields(file)
        config: PreTrainedConfig = AutoConfig.for_model(fields.pop("model_type"), **fields)
    except (ArithmeticError, AttributeError, TypeError, StrictDataclassError) as error:
        raise ValueError(f"{file.path} is damaged: its numbers make no model ({error})") from error
    return config


def _end_ids(file: GgufFile) -> frozenset[int]:
    named = [file.metadata.get(f"tokenizer.ggml.{key}") for key in END_KEYS]
    tokens = file.values("tokenizer.ggml.tokens")
    by_text = [i for i, token in enumerate(tokens) if token in END_TEXTS]
    return frozenset([*(i for i in named if i is not None), *by_text])


def _gguf_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    file = GgufFile(path)
    if "tokenizer.ggml.tokens" not in file.metadata:
        raise ValueError(f"{path} has no tokenizer: give the folder or hub name of one (--tokenizer)")
    try:
        made: PreTrainedTokenizerBase = PreTrainedTokenizerFast.from_pretrained(
            path.parent, gguf_file=path.name
        )
    except (ValueError, KeyError) as error:
        kind = file.metadata.get("tokenizer.ggml.model")
        raise ValueError(
            f"{path} has a tokenizer of the kind {kind!r} that transformers does not read ({error}): give the"
            " folder or hub name of one (--tokenizer)"
        ) from error
    if not made.chat_template:
        logger.warning(
            "%s has no chat template, so chats are refused and completions served. A tokenizer with one"
            " (--tokenizer FOLDER) changes this",
            path,
        )
    return made
