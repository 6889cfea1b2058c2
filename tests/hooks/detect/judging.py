"""A guard whose model is a regular expression: it judges streams as a model does, and counts its work."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any

from hooks import Chunk, GenerationRequest, prompt_texts
from hooks.detect.coverage import Judged
from hooks.detect.detector import Match
from hooks.detect.model_guard import ModelGuard

Wait = Callable[[], Coroutine[Any, Any, None]]


async def at_once() -> None:
    await asyncio.sleep(0)


class PatternJudge:
    """Objects to a pattern's first match after the last one, at the first text that shows it whole.

    It leaves the last `num_undecided` characters of a text unjudged, as a rule does that needs to see more.
    """

    def __init__(
        self, pattern: str, wait: Wait, num_undecided: int, where: tuple[int, str] = (0, "content")
    ) -> None:
        """`where`: the output and the channel."""
        self.where = where
        self.num_judged = 0
        self.pattern = re.compile(pattern)
        self.wait = wait
        self.num_undecided = num_undecided
        self.asked: list[tuple[str, bool]] = []
        self.text = ""
        self.start = 0
        self.is_running = False
        self.is_closed = False

    async def judge(self, text: str, is_final: bool) -> Judged:
        assert not self.is_running
        assert not self.is_closed
        self.is_running = True
        try:
            self.asked.append((text, is_final))
            self.text += text
            await self.wait()
        finally:
            self.is_running = False
        decided = len(self.text) - (0 if is_final else min(self.num_undecided, len(self.text)))
        decided = self.num_judged = max(decided, self.start)
        if (found := self.pattern.search(self.text, self.start, decided)) is None:
            return Judged(decided)
        self.start = found.end()
        return Judged(decided, Match(*found.span(), "found"))

    def close(self) -> None:
        assert not self.is_running
        self.is_closed = True


class PatternGuard(ModelGuard):
    """Remembers its judges."""

    def __init__(
        self, pattern: str = "!", *, wait: Wait = at_once, num_undecided: int = 0, **options: Any
    ) -> None:
        super().__init__(debounce=num_undecided, **options)
        self.pattern = pattern
        self.wait = wait
        self.num_undecided = num_undecided
        self.judges_made: list[PatternJudge] = []

    def open_judge(self, chunk: Chunk) -> PatternJudge:
        where = chunk.output_index, chunk.channel
        self.judges_made.append(PatternJudge(self.pattern, self.wait, self.num_undecided, where))
        return self.judges_made[-1]

    async def judge_prompt(self, request: GenerationRequest) -> Match | None:
        for prompt in prompt_texts(request):
            if found := re.search(self.pattern, prompt.text):
                return Match(*found.span(), "found")
        return None
