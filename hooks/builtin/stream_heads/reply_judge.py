"""Judges one reply as it grows: its new text becomes tokens, and the model reads each token once."""

from collections.abc import Sequence
from functools import partial

from engine.guard_models import TokenStream
from hooks.builtin.guard_prompts.conversation import Turn
from hooks.builtin.guard_prompts.growing_text import GrowingText
from hooks.builtin.guard_prompts.threads import tokenize
from hooks.builtin.stream_heads.debounce import Offences
from hooks.builtin.stream_heads.heads import SAFE
from hooks.builtin.stream_heads.reader import Reader
from hooks.detect.coverage import Judged
from hooks.detect.detector import Match


class ReplyJudge:
    """Implements `StreamJudge`. A verdict covers the tokens that no later one changes: not a last word that
    may grow, and not a last token that may be the first one of a pair.

    A first word that may grow is covered all the same if the model finds it safe as it stands: so the first
    text need not wait for the next word. The word is judged again once it is whole.
    """

    def __init__(
        self,
        reader: Reader,
        turns: Sequence[Turn],
        offences: Offences,
        caller: str,
        *,
        waits_for_end: bool,
        covers_open: bool,
    ) -> None:
        """`turns`: as `Reader.turns` gives them. `waits_for_end`: an offence is told when it has ended, so
        that it is told once and whole. `covers_open`: a first word is covered though it may grow."""
        self._reader = reader
        self._turns = list(turns)
        self._caller = caller
        self._waits_for_end = waits_for_end
        self._covers_open = covers_open
        self._offences = offences
        self._text = GrowingText(reader.tokenizer)
        self._ends: list[int] = []
        """For each token of the text, the characters up to its end."""
        self._num_lead = 0
        """Characters at the beginning of the text that stand before the stream's first."""
        self._num_prompt = 0
        """Tokens of the prompt."""
        self._num_told = 0
        """Tokens that are not told as offences any more."""
        self._num_judged = 0
        self._stream: TokenStream | None = None

    async def judge(self, text: str, is_final: bool) -> Judged:
        """Raises `EngineError` as `TokenStream.feed` does, and `LogitsError`."""
        covers_open = self._covers_open and self._stream is None
        if self._stream is None:
            self._stream, lead = await self._begin()
            self._num_lead = len(lead)
            text = lead + text
        num_kept, ids, ends = await tokenize(len(text), partial(self._text.add, text, is_final=is_final))
        covers_open = covers_open and not (ends and ends[-1] > self._num_lead)
        if covers_open:  # otherwise nothing would be covered
            opened = self._text.give_open()
            ids, ends = [*ids, *opened.ids], [*ends, *opened.ends]
        if num_kept < len(self._ends):
            del self._ends[num_kept:]
            self._offences.truncate(num_kept)
            self._stream.truncate(self._num_prompt + num_kept)
            self._num_told = min(self._num_told, num_kept)
        if ids:
            tokens = zip(await self._stream.feed(ids), ends, strict=True)
            read = self._reader.reply_heads.read
            self._offences.add([read(one) if end > self._num_lead else SAFE for one, end in tokens])
            self._ends += ends
        if covers_open and not self._offences.are_all_safe:
            return Judged(0)
        return self._judged(is_final)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    async def _begin(self) -> tuple[TokenStream, str]:
        """The stream, and the text before the reply that is read with the reply."""
        start = self._turns.pop().text if self._turns[-1].role == "assistant" else ""
        stream, lead = await self._reader.open(self._turns, self._caller)
        self._num_prompt = stream.num_tokens
        return stream, lead + start

    def _judged(self, is_final: bool) -> Judged:
        num_decided = len(self._ends) if is_final else self._offences.num_decided
        runs = self._offences.runs(self._num_told)
        if self._waits_for_end and not is_final and runs and runs[-1][1] == len(self._ends):
            num_decided = runs.pop()[0]
        matches: list[Match] = []
        for first, behind, category in runs:
            start = self._place(first)
            # Tokens that are a part of a character are found with the whole character.
            places = map(self._place, range(behind, len(self._ends) + 1))
            end = next((place for place in places if place > start), None)
            if end is None:
                num_decided = min(num_decided, first)
                break
            matches.append(Match(start, end, category))
        self._num_told = num_decided
        end = self._text.num_characters - self._num_lead if is_final else self._place(num_decided)
        self._num_judged = max(self._num_judged, end, *(match.end for match in matches))
        is_open = is_final and self._offences.num_decided < len(self._ends)
        open_from = self._place(self._offences.num_decided) if is_open else None
        return Judged(self._num_judged, others=matches, open_from=open_from)

    def _place(self, num_tokens: int) -> int:
        """The stream's characters up to the end of the first tokens."""
        end = self._ends[num_tokens - 1] if num_tokens else 0
        return max(0, end - self._num_lead)
