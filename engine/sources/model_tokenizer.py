"""A model's tokenizer as transformers makes it of the model's files, in a form that needs no transformers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer as FastTokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class ModelTokenizer:
    fast: FastTokenizer
    """It neither truncates nor pads."""
    eos_token_id: int | None
    special_tokens: Mapping[str, str]
    """By the names that chat templates have for them: `bos_token`, `eos_token` and others."""
    chat_template: str | Mapping[str, str] | None
    """Several have names: `default`, `tool_use`."""

    @classmethod
    def of(cls, tokenizer: "PreTrainedTokenizerBase") -> "ModelTokenizer":
        """Raises `ValueError` for a tokenizer that has no fast form."""
        if not tokenizer.is_fast:
            kind = type(tokenizer).__name__
            raise ValueError(f"{kind} has no fast form (tokenizer.json), which is needed.")
        fast: FastTokenizer = tokenizer.backend_tokenizer
        fast.no_truncation()
        fast.no_padding()
        return cls(fast, tokenizer.eos_token_id, tokenizer.special_tokens_map, tokenizer.chat_template)

    def content(self) -> bytes:
        """For `from_content`: a line of JSON, and the file of the fast tokenizer."""
        about = {
            "eos_token_id": self.eos_token_id,
            "special_tokens": dict(self.special_tokens),
            "chat_template": self.chat_template,
            "encode_special_tokens": self.fast.encode_special_tokens,  # the file does not have it
        }
        return f"{json.dumps(about)}\n{self.fast.to_str()}".encode()

    @classmethod
    def from_content(cls, content: bytes) -> "ModelTokenizer":
        line, _, file = content.partition(b"\n")
        about: dict[str, Any] = json.loads(line)
        fast = FastTokenizer.from_buffer(file)
        fast.encode_special_tokens = about.pop("encode_special_tokens")
        return cls(fast, **about)
