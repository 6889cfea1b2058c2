"""A chat as a token classifier reads it: the model's own chat template, up to where the reply begins.

A thinking model gets an empty block of thoughts there (`enable_thinking=False`), as Qwen3Guard-Stream was
trained with. Texts are tokenized together with the plain text around them, and no part of one becomes a
special token.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engine.protocol import Tokenizer
from hooks.builtin.guard_prompts.conversation import Turn
from hooks.builtin.guard_prompts.spliced_prompt import AddedTokens, chat_layout, check_marks, fill, mark

_TEMPLATE_KWARGS: Mapping[str, bool] = {"enable_thinking": False}


class ReplyPrompt(NamedTuple):
    """A chat up to its reply."""

    ids: list[int]
    """The tokens before `lead`."""
    lead: str
    """The plain text of the layout right before the reply, which may share tokens with it."""
    num_closed: int | None
    """Tokens up to the one that closes the last user's turn, with it. None: the layout closes turns with
    plain text, or the prompt has no user's turn."""


class ReplyLayout:
    """Lays out chats for one model."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Raises `ValueError` for a chat template that leaves out texts, or without a chat template."""
        self._tokenizer = tokenizer
        self._added = AddedTokens(tokenizer)
        asked = [Turn("user", "Hello.")]
        self.closes_turns = self.prompt(asked).num_closed is not None
        """Whether the layout closes a user's turn with a token of its own."""
        self.prompt([*asked, Turn("assistant", "Hi."), *asked])
        self.has_system = True
        try:
            self.prompt([Turn("system", "Be brief."), *asked])
        except ValueError:
            self.has_system = False

    def prompt(self, turns: Sequence[Turn]) -> ReplyPrompt:
        """The chat before the reply to its last turn. Raises `ValueError` as `Tokenizer.encode_text` does."""
        messages = [{"role": turn.role, "content": mark(i)} for i, turn in enumerate(turns)]
        layout = chat_layout(self._tokenizer, messages, _TEMPLATE_KWARGS)
        check_marks(layout, len(turns))
        last_user = max((i for i, turn in enumerate(turns) if turn.role == "user"), default=None)
        texts = [turn.text for turn in turns]
        ids: list[int] = []
        num_closed: int | None = None
        is_closing = False
        *parts, end = self._added.split(layout)
        if isinstance(end, int):
            parts, end = [*parts, end], ""
        for part in parts:
            if isinstance(part, str):
                ids += self._tokenizer.encode_text(fill(part, texts)).ids
                is_closing = is_closing or (last_user is not None and mark(last_user) in part)
                continue
            ids.append(part)
            if is_closing and num_closed is None:
                num_closed = len(ids)
        return ReplyPrompt(ids, fill(end, texts), num_closed)
