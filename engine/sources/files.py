"""All of a model but its weights: configuration, tokenizer, and the tokens that end an answer.

transformers reads the files. What it makes of them is kept (`kept`), so that most starts do not import it.
"""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from engine.sources.gguf_families import config_fields
from engine.sources.gguf_file import GgufFile
from engine.sources.kept import kept, small_files
from engine.sources.model_config import KeptConfig, ModelConfig
from engine.sources.model_tokenizer import ModelTokenizer
from engine.sources.names import SMALL_FILES, located

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

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

TOKENIZER_FILES = (*SMALL_FILES, "additional_chat_templates/*.jinja")


def config_of(model: str, *, trust_remote_code: bool = False) -> ModelConfig:
    """Raises `ValueError`, with what to do, for a model that is not found or not read, and `OSError` for a
    folder that is not a model's."""
    path = located(model, with_weights=False)
    if path.is_file():
        fields = config_fields(GgufFile(path))
        inputs = [json.dumps(fields, default=str).encode()]
    elif trust_remote_code:
        return transformers_config_of(model, trust_remote_code=True)
    else:
        inputs = small_files(path, ["config.json"])
    made: list[PreTrainedConfig] = []

    def make() -> bytes:
        from engine.sources.transformers_files import fields_of

        made.append(transformers_config_of(model))
        return json.dumps(fields_of(made[0])).encode()

    if (stored := json.loads(kept("config", inputs, make))) is not None:
        return KeptConfig(stored)
    return made[0] if made else transformers_config_of(model)


def transformers_config_of(model: str, *, trust_remote_code: bool = False) -> "PreTrainedConfig":
    """The configuration as transformers has it. Raises as `config_of` does."""
    from engine.sources.transformers_files import read_config

    return read_config(located(model, with_weights=False), trust_remote_code=trust_remote_code)


def eos_token_ids_of(model: str, config: ModelConfig) -> frozenset[int]:
    """The ids that end an answer."""
    path = located(model, with_weights=False)
    if path.is_file():
        return _end_ids(GgufFile(path))
    try:
        ids = json.loads((path / "generation_config.json").read_text(encoding="utf-8")).get("eos_token_id")
    except (OSError, ValueError):  # the model has no generation configuration
        ids = config.get_text_config().eos_token_id
    return frozenset(() if ids is None else [ids] if isinstance(ids, int) else ids)


def tokenizer_of(model: str, *, trust_remote_code: bool = False) -> ModelTokenizer:
    """Raises `ValueError` and `OSError` as `config_of` does."""
    path = located(model, with_weights=False)

    def make() -> bytes:
        from engine.sources.transformers_files import read_tokenizer

        return ModelTokenizer.of(read_tokenizer(path, trust_remote_code=trust_remote_code)).content()

    if path.is_file():
        made = ModelTokenizer.from_content(_kept_of_gguf(path, make))
        if not made.chat_template:
            logger.warning(
                "%s has no chat template, so chats are refused and completions served. A tokenizer with one"
                " (--tokenizer FOLDER) changes this",
                path,
            )
        return made
    if trust_remote_code:  # what the model's own code does is not known
        return ModelTokenizer.from_content(make())
    return ModelTokenizer.from_content(kept("tokenizer", small_files(path, TOKENIZER_FILES), make))


def _kept_of_gguf(path: Path, make: Callable[[], bytes]) -> bytes:
    file = GgufFile(path)
    if "tokenizer.ggml.tokens" not in file.metadata:
        raise ValueError(f"{path} has no tokenizer: give the folder or hub name of one (--tokenizer)")
    return kept("tokenizer", [file.header()], make)


def _end_ids(file: GgufFile) -> frozenset[int]:
    named = [file.metadata.get(f"tokenizer.ggml.{key}") for key in END_KEYS]
    tokens = file.values("tokenizer.ggml.tokens")
    by_text = [i for i, token in enumerate(tokens) if token in END_TEXTS]
    return frozenset([*(i for i in named if i is not None), *by_text])
