"""Judges one reply as it grows: its new text becomes tokens, and the model reads each token once."""

from collections.abc import Sequence
from functools import partial

from engine.protocol.guard_models import TokenStream
from hooks.builtin.guard_prompts.conversation import Turn
from hooks.builtin.guard_prompts.growing_text import GrowingText, tokenize
from hooks.builtin.stream_heads.reader import ChatReader
from hooks.builtin.stream_heads.reply_verdicts import ReplyVerdicts
from hooks.detect.coverage import Judged


class ReplyJudge:
    """Implements `StreamJudge`. A verdict does not cover a last word that may grow.

    A first word that may grow is covered all the same if the model finds it safe as it is: so the first
    text need not wait for the next word. The word is judged again once it is whole.
    """

    def __init__(
        self,
        reader: ChatReader,
        turns: Sequence[Turn],
        verdicts: ReplyVerdicts,
        caller: str,
        *,
        covers_open: bool,
    ) -> None:
        """`turns`: as `ChatReader.turns` gives them. `verdicts`: new ones. `covers_open`: a first word is
        covered though it may grow."""
        self._reader = reader
        self._turns = list(turns)
        self._caller = caller
        self._verdicts = verdicts
        self._covers_open = covers_open
        self._text = GrowingText(reader.tokenizer)
        self._num_prompt = 0
        """Tokens of the prompt."""
        self._stream: TokenStream | None = None

    async def judge(self, text: str, is_final: bool) -> Judged:
        """Raises `PromptTooLongError`, `LogitsError`, and `EngineError` as `TokenStream.feed` does."""
        covers_open = self._covers_open and self._stream is None
        if self._stream is None:
            self._stream, lead = await self._begin()
            self._verdicts.begin_with(len(lead))
            text = lead + text
        add = self._text.add
        num_kept, ids, ends = await tokenize(len(text), partial(add, text, is_final=is_final))
        covers_open = covers_open and not self._verdicts.has_reply(ends)
        if covers_open:  # otherwise nothing would be covered
            num_same, rest, rest_ends = await tokenize(len(text), partial(add, "", is_final=True))
            ids, ends = [*ids[:num_same], *rest], [*ends[:num_same], *rest_ends]
        if num_kept < self._verdicts.num_tokens:
            self._verdicts.truncate(num_kept)
            self._stream.truncate(self._num_prompt + num_kept)
        if ids:
            self._verdicts.add(ends, self._reader.reply_heads.read(await self._stream.feed(ids)))
        if covers_open and not self._verdicts.are_all_safe:
            return Judged(0)
        return self._verdicts.judged(self._text.num_characters, is_final)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    async def _begin(self) -> tuple[TokenStream, str]:
        """The stream, and the text before the reply that is read with the reply."""
        start = self._turns.pop().text if self._turns[-1].role == "assistant" else ""
        stream, lead = await self._reader.open(self._turns, self._caller)
        self._num_prompt = stream.num_tokens
        return stream, lead + start
