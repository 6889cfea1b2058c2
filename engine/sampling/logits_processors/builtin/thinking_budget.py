"""Limits the tokens of thinking: then a line break comes, and the token that ends thinking.

The tokens in the last block of thinking count, with those that the prompt has of it (a chat template may open
the block). If the output opens another block, that one gets what is left of the budget. The thinking of
earlier turns does not count.

The markers are tokens of the model's own tokenizer. A model without such tokens is refused at start. The
parameter is named as in SGLang's processors.
"""

from typing import NamedTuple

from pydantic import BaseModel, Field
from torch import Tensor

from engine.sampling.logits_processors import Context, TokenIds
from engine.sampling.logits_processors.builtin.base import Reading, keep_only


class Markers(NamedTuple):
    start: str = "<think>"
    end: str = "</think>"


PRESETS = {
    "deepseek-r1": Markers(),
    "glm-4": Markers(),
    "mistral": Markers("[THINK]", "[/THINK]"),
    "qwen3": Markers(),
    "qwen3.5": Markers(),
    "seed-oss": Markers("<seed:think>", "</seed:think>"),
}
"""By the name of the family of models."""


class _Ids(NamedTuple):
    start: int
    end: int
    newline: int


class ThinkingBudget(Reading):
    kind = "mask"

    class Params(BaseModel, extra="forbid"):
        thinking_budget: int = Field(ge=0, strict=True)

    @classmethod
    def prepare(
        cls, context: Context, model: str = "qwen3", start: str | None = None, end: str | None = None
    ) -> _Ids:
        """`model`: one of `PRESETS`; `start`, `end`: the markers around thinking, for any other model. Raises
        `ValueError` if the tokenizer has no token for a marker or for a line break."""
        if model.lower() not in PRESETS:
            raise ValueError(f"unknown preset {model!r}; known presets are {', '.join(PRESETS)}")
        markers = PRESETS[model.lower()]
        return _Ids(*(_id_of(text, context) for text in (start or markers.start, end or markers.end, "\n")))

    def __init__(self, params: Params, shared: _Ids) -> None:
        self._budget, self._ids = params.thinking_budget, shared
        super().__init__()

    def begin(self) -> None:
        self._is_open = False
        self._spent = 0

    def observe(self, token_id: int, at: int, is_prompt: bool) -> None:
        if token_id == self._ids.end:
            self._is_open = False
        elif token_id == self._ids.start and (is_prompt or not self._is_open):
            self._is_open = True
            self._spent = 0 if is_prompt else self._spent
        elif self._is_open:
            self._spent += 1

    def __call__(self, input_ids: TokenIds, logits: Tensor) -> None:
        self.catch_up(input_ids)
        if self._is_open and self._spent >= self._budget:
            is_on_new_line = input_ids[-1] == self._ids.newline
            keep_only(logits, self._ids.end if is_on_new_line else self._ids.newline)


def _id_of(text: str, context: Context) -> int:
    tokenizer = context.tokenizer
    ids = tokenizer.encode(text, add_special_tokens=False)
    if len(ids) != 1:
        # A SentencePiece tokenizer encodes a text with a space before it, though it has the token.
        ids = [i for i in range(context.vocab_size) if tokenizer.raw(i) == text.encode()]
    if not ids or tokenizer.raw(ids[0]) != text.encode():
        raise ValueError(f"the model's tokenizer has no token for {text!r}")
    return ids[0]
