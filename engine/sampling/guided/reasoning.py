"""Finds where a model's reasoning ends and its answer begins, from the tokens as they come.

Reasoning is the part of an output that the server's parser takes for reasoning (`engine.parsers`). Until it
ends, every token may come except one that ends the output. Some models may reason or not. Their output begins
either with the tokens of the parser's marker, or with the answer itself.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.parsers.reasoning import Markers, begins_open, markers_of
from engine.text.tokenizer import LocalTokenizer

MAX_MARKER = 128
"""Bytes that are kept to find an end marker that comes in pieces."""

# gpt-oss thinks in channels of its own, and answers in the channel called final.
_HARMONY_END = re.compile(rb"<\|channel\|>final[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>")


@dataclass(frozen=True, slots=True)
class ReasoningForm:
    """The marks of reasoning of a family of models."""

    markers: Markers | None
    """None: the channels of gpt-oss."""
    starts: tuple[tuple[int, ...], ...]
    """The tokens of each marker that can begin reasoning."""
    end: re.Pattern[bytes]
    raw: Callable[[int], bytes]
    """Gives a token's bytes."""

    @classmethod
    def of(cls, parser: str, tokenizer: LocalTokenizer) -> "ReasoningForm":
        if parser == "openai_gptoss":
            return cls(None, (), _HARMONY_END, tokenizer.raw)
        markers = markers_of(parser)
        starts = tuple(tuple(tokenizer.encode(text, add_special_tokens=False)) for text in markers.start)
        end = re.compile(b"|".join(re.escape(text.encode()) for text in markers.end))
        return cls(markers, starts, end, tokenizer.raw)

    def begin(self, prompt_end: str) -> "Reasoning":
        """`prompt_end`: the last words of the prompt."""
        return Reasoning(self, is_open=self.markers is None or begins_open(self.markers, prompt_end))


class Reasoning:
    """The reasoning of one output, as far as it has come."""

    def __init__(self, form: ReasoningForm, *, is_open: bool) -> None:
        self._form = form
        self.is_open = is_open
        """False: reasoning has not begun, and need not begin."""
        self.begun: list[int] = []
        """The tokens that came before reasoning opened: the first ones of a marker."""
        self._tail = b""

    @property
    def next_ids(self) -> set[int]:
        """The tokens that continue a marker."""
        return {start[len(self.begun)] for start in self._starts(self.begun)}

    def observe(self, token_id: int) -> Sequence[int] | bytes | None:
        """Read the next token. Returns None while reasoning continues.

        When reasoning has ended, or is found to be absent, returns the answer's beginning: bytes, or tokens.
        """
        if not self.is_open:
            self.begun.append(token_id)
            if tuple(self.begun) in self._form.starts:
                self.is_open = True
            elif not self._starts(self.begun):
                return self.begun
            return None
        self._tail += self._form.raw(token_id)
        if found := self._form.end.search(self._tail):
            return self._tail[found.end() :].lstrip()
        self._tail = self._tail[-MAX_MARKER:]
        return None

    def _starts(self, begun: Sequence[int]) -> list[tuple[int, ...]]:
        """The markers that begin with these tokens and have more."""
        num = len(begun)
        return [one for one in self._form.starts if one[:num] == tuple(begun) and len(one) > num]
