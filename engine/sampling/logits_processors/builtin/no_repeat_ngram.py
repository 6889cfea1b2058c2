"""Forbids to repeat a run of `ngram_size` tokens within a window, as in DeepSeek-OCR and SGLang.

The window is the last `window_size` tokens of prompt and output. A run counts if it begins in the window. A
token in `whitelist_token_ids` may end a run that came before.
"""

from collections import defaultdict

from pydantic import BaseModel, Field

from engine.sampling.logits_processors import TokenId, TokenIds
from engine.sampling.logits_processors.builtin.base import ListedMask, Reading


class NoRepeatNGram(Reading, ListedMask):
    class Params(BaseModel, extra="forbid"):
        ngram_size: int = Field(ge=1, le=64)
        window_size: int = Field(ge=1)
        whitelist_token_ids: list[TokenId] = Field([], fail_fast=True)

    def __init__(self, params: Params) -> None:
        self._size, self._window = params.ngram_size, params.window_size
        self._whitelist = frozenset(params.whitelist_token_ids)
        super().__init__()

    def begin(self) -> None:
        self._last: list[int] = []
        """The last tokens read, one fewer than a run has."""
        self._followed: dict[tuple[int, ...], dict[int, int]] = defaultdict(dict)
        """The tokens that followed a beginning of a run, each with the place where its latest run begins."""

    def observe(self, token_id: int, at: int, is_prompt: bool) -> None:
        if len(self._last) == self._size - 1:
            self._followed[tuple(self._last)][token_id] = at - self._size + 1
        self._last = [*self._last, token_id][-(self._size - 1) :] if self._size > 1 else []

    def forbidden(self, input_ids: TokenIds) -> list[int]:
        self.catch_up(input_ids)
        followed = self._followed.get(tuple(self._last), {})
        first = len(input_ids) - self._window
        return [i for i, begin in followed.items() if begin >= first and i not in self._whitelist]
