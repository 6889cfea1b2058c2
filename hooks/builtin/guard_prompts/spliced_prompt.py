"""A prompt as token ids: a layout with marks, and texts that are not to be trusted in the marks' places.

The layout comes from a chat template, which is rendered around marks. A text is tokenized together with the
plain text around it, so that the ids are those of the whole prompt, but no part of a text becomes a special
token: a text cannot close its own turn.
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from engine.protocol import GenerationRequest, Tokenizer
from hooks.builtin.guard_prompts.growing_text import GrowingText

_MARK = f"weir{secrets.token_hex(8)}"
"""Unknown outside of this process, so that no layout has it by chance."""
_MARKS = re.compile(rf"{_MARK}n(\d+)n")


def mark(number: int) -> str:
    """The mark that stands for the text of this number."""
    return f"{_MARK}n{number}n"


def chat_layout(
    tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]], template_kwargs: Mapping[str, Any]
) -> str:
    """The messages in the chat template. Raises `RequestError` if it refuses them."""
    extra = {"chat_template_kwargs": dict(template_kwargs)}
    return tokenizer.chat_text(
        GenerationRequest(
            request_id="layout", model="", endpoint="chat", messages=tuple(messages), extra=extra
        )
    )


def fill(layout: str, texts: Sequence[str]) -> str:
    """The layout with texts in the marks' places."""
    return _MARKS.sub(lambda found: texts[int(found[1])], layout)


def check_marks(layout: str, count: int) -> None:
    """Raise `ValueError` unless the layout has each of the first `count` marks once, and no other."""
    found = sorted(map(int, _MARKS.findall(layout)))
    if found != [*range(count)]:
        raise ValueError("the layout leaves out or repeats messages")


def text_after_marks(layout: str) -> str:
    return _MARKS.split(layout)[-1]


class AddedTokens:
    """The tokens of a tokenizer that a layout may have and a text may not: special tokens and the like."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._names: dict[int, str | None] = {}
        """The findings about ids: the token's text, or None for a token of plain text."""

    def split(self, layout: str) -> list[int | str]:
        """The layout as added tokens and the plain texts between them."""
        ids = dict.fromkeys(self._tokenizer.encode(layout, add_special_tokens=False))
        added = {name: i for i in ids if (name := self._name(i)) is not None and name in layout}
        if not added:
            return [layout]
        longest_first = sorted(added, key=len, reverse=True)
        parts = re.split(f"({'|'.join(map(re.escape, longest_first))})", layout)
        return [added.get(part, part) for part in parts if part]

    def _name(self, token_id: int) -> str | None:
        if token_id not in self._names:
            self._names[token_id] = self._find_name(token_id)
        return self._names[token_id]

    def _find_name(self, token_id: int) -> str | None:
        name = self._tokenizer.string(token_id)
        if not name or self._tokenizer.encode(name, add_special_tokens=False) != [token_id]:
            return None
        try:
            return None if self._tokenizer.encode_text(name).ids == [token_id] else name
        except ValueError:
            return name


class SplicedPrompt:
    """A prompt whose last text grows. Its ids depend on the texts, and not on the pieces in which they came.

    `texts`: those of the layout's marks but the last, whose text grows. `trims`: the layout strips white
    space around texts. Raises `ValueError` for a layout without the marks, and as `Tokenizer.encode_text`.
    """

    def __init__(
        self, tokenizer: Tokenizer, added: AddedTokens, layout: str, texts: Sequence[str], *, trims: bool
    ) -> None:
        last = mark(len(texts))
        check_marks(layout, len(texts) + 1)
        texts = [text.strip() for text in texts] if trims else texts
        self._tokenizer = tokenizer
        self._trims = trims
        self._spaces = ""
        """White space at the end of the growing text, if the layout would strip it there."""
        self._is_blank = True
        parts = added.split(layout)
        at = next(i for i, part in enumerate(parts) if isinstance(part, str) and last in part)
        self.num_shared = self._count_shared(parts)
        """Tokens at the beginning that all prompts of this layout have."""
        before, _, self._end = str(parts[at]).partition(last)
        filled = [part if isinstance(part, int) else fill(part, texts) for part in parts[:at]]
        self._fixed = self._encode(filled)
        self._after = parts[at + 1 :]
        self._text = GrowingText(tokenizer)
        self._ids: list[int] = []
        self._grow(fill(before, texts))

    def add(self, text: str) -> None:
        """Append to the growing text."""
        if self._trims:
            text = self._spaces + (text.lstrip() if self._is_blank else text)
            kept = text.rstrip()
            text, self._spaces = kept, text[len(kept) :]
        self._is_blank = self._is_blank and not text
        if text:
            self._grow(text)

    def ids(self, answer: str = "") -> list[int]:
        """The ids of the whole prompt. `answer`: the beginning of the model's answer, after the prompt."""
        after: list[int | str] = [self._end, *self._after]
        end = after.pop()
        after += [end + answer] if isinstance(end, str) else [end, answer]
        num_settled, tail = self._text.followed_by(str(after[0]))
        return [*self._fixed, *self._ids[:num_settled], *tail, *self._encode(after[1:])]

    def _grow(self, text: str) -> None:
        num_kept, ids, _ = self._text.add(text)
        self._ids[num_kept:] = ids

    def _encode(self, parts: Sequence[int | str]) -> list[int]:
        ids: list[int] = []
        for part in parts:
            ids += [part] if isinstance(part, int) else self._tokenizer.encode_text(part).ids
        return ids

    def _count_shared(self, parts: Sequence[int | str]) -> int:
        count = 0
        for part in parts:
            if isinstance(part, int):
                count += 1
                continue
            lead, *marked = _MARKS.split(part)
            tokens = self._tokenizer.encode_text(lead)
            if marked:  # the text may change the tokens of the last words before it
                return count + sum(word < tokens.words[-1] - 1 for word in tokens.words)
            count += len(tokens.ids)
        return count
