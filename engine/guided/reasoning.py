"""Where a model's reasoning ends, and what it was asked for begins, told by its tokens as they come.

What counts as reasoning is what the server's parser takes for it (`engine.parsers`). Until it has ended,
every token may come but one that ends the output. A model that may reason or not begins with either: with the
tokens of the parser's marker, or with what it was asked for.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.parsers.reasoning import REASONING_MARKERS, begins_open
from engine.text.tokenizer import LocalTokenizer

MAX_MARKER = 128
"""Bytes that are kept to find an end in that comes in pieces."""

# gpt-oss thinks in channels of its own, and answers in the one called final.
_HARMONY_END = re.compile(rb"<\|channel\|>final[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>")


@dataclass(frozen=True, slots=True)
class ReasoningForm:
    """A family's."""

    name: str
    """Of its parser."""
    starts: tuple[tuple[int, ...], ...]
    """The tokens of each marker that it may begin with."""
    end: re.Pattern[bytes]
    raw: Callable[[int], bytes]
    """A token's bytes."""

    @classmethod
    def of(cls, parser: str, tokenizer: LocalTokenizer) -> "ReasoningForm":
        if parser == "openai_gptoss":
            return cls(parser, (), _HARMONY_END, tokenizer.raw)
        markers = REASONING_MARKERS[parser]
        starts = tuple(tuple(tokenizer.encode(text, add_special_tokens=False)) for text in markers.start)
        end = re.compile(b"|".join(re.escape(text.encode()) for text in markers.end))
        return cls(parser, starts, end, tokenizer.raw)

    def begin(self, prompt_end: str) -> "Reasoning":
        """`prompt_end`: the prompt's last words."""
        markers = REASONING_MARKERS.get(self.name)
        return Reasoning(self, is_open=markers is None or begins_open(markers, prompt_end))


class Reasoning:
    """One output's, as far as it has come."""

    def __init__(self, form: ReasoningForm, *, is_open: bool) -> None:
        self._form = form
        self.is_open = is_open
        """False: it has not begun, and need not."""
        self.begun: list[int] = []
        """Until it is open, the tokens so far: the first ones of a marker."""
        self._tail = b""

    @property
    def next_ids(self) -> set[int]:
        """The tokens that go on with a marker."""
        return {start[len(self.begun)] for start in self._starts(self.begun)}

    def take(self, token_id: int) -> Sequence[int] | bytes | None:
        """The next token. None: it goes on. Once reasoning has ended, or there turns out to be none, what has
        come after it: bytes, or tokens."""
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
        """The markers that begin so, and go on."""
        num = len(begun)
        return [one for one in self._form.starts if one[:num] == tuple(begun) and len(one) > num]
