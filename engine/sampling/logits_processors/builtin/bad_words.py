"""Forbids words, like vLLM's `bad_words`: masks the last token of a word where its other tokens have come.

Each word is tokenized twice, with a space before it and without. The same word in other tokens passes. To
keep a word out for certain, use a hook that reads the text as well.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Annotated, Self

from pydantic import BaseModel, Field, PrivateAttr, ValidationInfo, model_validator

from engine.protocol import Tokenizer
from engine.sampling.logits_processors import Context
from engine.sampling.logits_processors.builtin.base import ListedMask


class BadWords(ListedMask):
    class Params(BaseModel, extra="forbid"):
        bad_words: list[Annotated[str, Field(max_length=1000)]] = Field(
            min_length=1, max_length=1000, fail_fast=True
        )
        _sequences: set[tuple[int, ...]] = PrivateAttr(default_factory=set)

        @model_validator(mode="after")
        def _tokenize(self, info: ValidationInfo) -> Self:
            for word in self.bad_words:
                if not word.strip():
                    raise ValueError("a bad word must not be blank")
                if isinstance(info.context, Context):
                    self._sequences.update(_tokenized(word, info.context.tokenizer))
            return self

    def __init__(self, params: Params, context: Context) -> None:
        self.sequences = [ids for ids in params._sequences if ids[-1] < context.vocab_size]
        """The tokens of each word, without the words that the model cannot say."""
        self._endings: dict[int | None, list[tuple[list[int], int]]] = defaultdict(list)
        """By the last token before a word's end: the word's tokens before its last one, and the last one.
        None: words of one token, which are forbidden anywhere."""
        for *first, last in self.sequences:
            self._endings[first[-1] if first else None].append((first, last))

    def forbidden(self, input_ids: Sequence[int]) -> list[int]:
        """The tokens that would end a word after `input_ids`."""
        words = [*self._endings.get(None, ()), *self._endings.get(input_ids[-1], ())]
        return [last for first, last in words if not first or [*input_ids[-len(first) :]] == first]

    def is_begun(self, token_ids: Sequence[int]) -> bool:
        """Whether `token_ids` end with the beginning of a word."""
        return any(
            tuple(token_ids[-length:]) == word[:length]
            for word in self.sequences
            for length in range(1, len(word))
        )


def _tokenized(word: str, tokenizer: Tokenizer) -> Iterator[tuple[int, ...]]:
    for text in (word.lstrip(), f" {word.lstrip()}"):
        ids = tokenizer.encode(text, add_special_tokens=False)
        if not ids:
            raise ValueError(f"this model's tokenizer has no tokens for {word!r}")
        yield tuple(ids)
