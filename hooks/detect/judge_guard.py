"""A guard made from a judge that needs time for a text, such as a classifier or a remote service.

The judge sees windows (see `windows`). Text is released when every window over it has been judged.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Unpack

from hooks import Chunk, GenerationRequest, PromptText, Verdict, emit, prompt_texts, with_prompt_texts
from hooks.detect.acting_guard import ActingGuard, Options, PromptReply, spliced
from hooks.detect.detector import Match
from hooks.detect.excerpt import Excerpt
from hooks.detect.windows import Cutter, Place, Windows

_REACH = 64
"""Decided characters that are kept before the open window: they show where in JSON the window begins."""
_SHAPE = {"id", "type", "function", "name", "description", "parameters"}
"""The API's names for the fields of a tool and of a call. They are not judged, and must not be replaced."""

Judge = Callable[[list[str]], Awaitable[list[list[Match]]]]
"""Returns the matches in each text. If it raises, the request fails closed."""


class JudgeGuard(ActingGuard):
    """Acts on a judge's matches in a stream's windows, and holds the text of windows not judged yet.

    At a cut that the client chose, the judge judges the last window as it is, because it cannot say what
    may become a match. `at_cut: withhold` withholds the text of that window instead. A judge is not shown the
    text that an output continues: it gives one answer for a window, and the client's own words would count.
    """

    def __init__(
        self, judge: Judge, windows: Windows, judge_prompts: Judge | None = None, **options: Unpack[Options]
    ) -> None:
        """`judge_prompts`: judges the texts of prompts; None: `judge` does."""
        options.setdefault("at_cut", "release")
        super().__init__(_REACH, windows.longest, **options)
        self.windows = windows
        self._judge = judge
        self._judge_prompts = judge_prompts or judge

    async def __call__(self, chunk: Chunk) -> Verdict:
        if self._passes(chunk):
            return emit(chunk.pending)
        name = self._own_name(chunk)
        matches = [match for match, _ in (await self._find(self._judge, self._cut(name)))[0]] if name else []
        if verdict := self._act_on_name(chunk, matches):
            return verdict
        excerpt = self._excerpt(chunk)
        text = excerpt.text + excerpt.read(chunk.text_diff, chunk.is_final)
        cutter = chunk.state.get("cutter") or chunk.state.setdefault("cutter", Cutter(self.windows))
        withholds = chunk.is_final and self._withholds_at_cut(chunk)
        places, undecided = cutter.cut(text, excerpt.start, chunk.is_final and not withholds)
        found: list[Match] = []
        for match, place in (await self._find(self._judge, (text, places)))[0]:
            found += [match] if self._ends else excerpt.replaceable(text, match, place)
        found, end = excerpt.settled(text, found, len(text) if withholds else undecided, chunk.is_final)
        return self._act(chunk, excerpt, text, found, end, undecided if withholds else None)

    async def _judge_prompt(self, request: GenerationRequest) -> PromptReply:
        prompts = [prompt for prompt in prompt_texts(request) if prompt.is_of(self._of)]
        texts = [Excerpt(is_json=prompt.is_json).read(prompt.text, is_final=True) for prompt in prompts]
        found = await self._find(self._judge_prompts, *map(self._cut, texts))
        for prompt, matches in zip(prompts, found, strict=True):
            if matches:
                return self._answer_prompt(request, [match for match, _ in matches], prompt.place)
        return request

    async def _redact_prompt(self, request: GenerationRequest) -> GenerationRequest:
        known: dict[PromptText, str] = {}
        seen: list[PromptText] = []

        def rewrite(prompt: PromptText) -> str:
            if prompt.is_of(self._of):
                seen.append(prompt)
            return known.get(prompt, prompt.text)

        while True:  # redacted texts are also read joined together, and that makes new texts
            seen.clear()
            redacted = with_prompt_texts(request, rewrite)
            unknown = [prompt for prompt in dict.fromkeys(seen) if prompt not in known]
            if not unknown:
                return redacted
            known.update(zip(unknown, await self._redacted(unknown), strict=True))

    async def _redacted(self, prompts: Sequence[PromptText]) -> list[str]:
        excerpts = [Excerpt(is_json=prompt.is_json) for prompt in prompts]
        texts = [one.read(prompt.text, is_final=True) for one, prompt in zip(excerpts, prompts, strict=True)]
        redacted: list[str] = []
        found = await self._find(self._judge_prompts, *map(self._cut, texts))
        for prompt, excerpt, text, new in zip(prompts, excerpts, texts, found, strict=True):
            matches = [part for match, place in new for part in excerpt.replaceable(text, match, place)]
            if prompt.is_json:
                matches = [match for match in matches if text[match.start : match.end] not in _SHAPE]
            spans, _ = self._decide(excerpt, text, matches, len(text), self._prompt_template)
            redacted.append(spliced(prompt.text, spans))
        return redacted

    def _cut(self, text: str) -> tuple[str, list[Place]]:
        """A whole text, and its windows."""
        return text, Cutter(self.windows).cut(text, 0, is_final=True)[0]

    async def _find(self, judge: Judge, *texts: tuple[str, list[Place]]) -> list[list[tuple[Match, Place]]]:
        """The matches that `judge` finds in each text, with places in the text, and each match's window."""
        windows = [(i, text, place) for i, (text, places) in enumerate(texts) for place in places]
        judged = await judge([text[start:end] for _, text, (start, end) in windows]) if windows else []
        found: list[list[tuple[Match, Place]]] = [[] for _ in texts]
        for (i, _, place), matches in zip(windows, judged, strict=True):
            at = place[0]
            found[i] += [(m._replace(start=at + m.start, end=at + m.end), place) for m in matches]
        return found
