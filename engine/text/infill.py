"""Prompts that ask for the text between two texts ("fill in the middle").

Models that were trained for it have special tokens for the parts. Each model family has its own, so the
tokenizer's vocabulary reveals the family.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from tokenizers import Tokenizer as FastTokenizer


@dataclass(frozen=True, slots=True)
class _Form:
    """A family's tokens, in the order of the prompt: one before each part, and one before the answer."""

    first: str
    second: str
    last: str | None = None
    is_suffix_first: bool = False

    @property
    def tokens(self) -> list[str]:
        return [self.first, self.second, *filter(None, [self.last])]


_FORMS = (
    _Form("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen Coder, CodeGemma
    _Form("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite Code
    _Form("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    _Form("▁<PRE>", "▁<SUF>", "▁<MID>"),  # Code Llama
    _Form("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek Coder
    _Form("[SUFFIX]", "[PREFIX]", is_suffix_first=True),  # Codestral
)
_ENDS = ("▁<EOT>", "<|file_separator|>", "<|file_sep|>", "<file_sep>")
"""Tokens with which some models end the middle."""


@dataclass(frozen=True, slots=True)
class Infill:
    """The prompt by which one model is asked for the middle."""

    tokens: tuple[int, ...]
    is_suffix_first: bool
    end_ids: frozenset[int]
    """Tokens that begin another part, or another file: they end the middle."""

    @classmethod
    def of(cls, fast: FastTokenizer) -> "Infill | None":
        """None: the tokenizer has no tokens for it."""
        for form in _FORMS:
            ids = [i for text in form.tokens if (i := fast.token_to_id(text)) is not None]
            if len(ids) == len(form.tokens):
                ends = {i for text in _ENDS if (i := fast.token_to_id(text)) is not None}
                return cls(tuple(ids), form.is_suffix_first, frozenset(ids) | ends)
        return None

    def prompt(self, prefix: list[int], suffix: list[int]) -> list[int]:
        """The prompt's ids, without those that begin every prompt."""
        parts = [suffix, prefix] if self.is_suffix_first else [prefix, suffix]
        return list(chain.from_iterable(self._marked(parts)))

    def _marked(self, parts: list[list[int]]) -> Iterator[list[int]]:
        for i, token_id in enumerate(self.tokens):
            yield [token_id]
            yield from parts[i : i + 1]
