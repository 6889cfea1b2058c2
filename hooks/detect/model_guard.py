"""A guard that is a model: it judges every stream while another model writes it."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, Protocol, Unpack, runtime_checkable

from hooks import Chunk, GenerationRequest, Verdict, checked, rewind, suppress, terminate
from hooks.detect.acting_guard import PromptReply
from hooks.detect.argument_types import Seconds
from hooks.detect.coverage import Coverage, Judged
from hooks.detect.coverage_guard import CoverageGuard, CoverageOptions
from hooks.detect.detector import Match
from hooks.prompts.texts import only_from


class StreamJudge(Protocol):
    """Judges one stream. A model's judge keeps what the model has computed, so that each call costs the new
    text alone."""

    async def judge(self, text: str, is_final: bool) -> Judged:
        """Judge the stream with `text`, its new text since the last call. `is_final`: the stream ends with
        it, and the answer must cover all of it.

        Calls come one at a time. What it raises fails the request, closed.
        """

    def close(self) -> None:
        """Free what the judge keeps. No call is running, and none follows. Closing twice is fine."""


@runtime_checkable
class WindowJudge(Protocol):
    """Judges one stream, as `StreamJudge` does, for a guard that `judges_windows`."""

    async def judge_windows(self, windows: Sequence[str], is_final: bool) -> Judged:
        """Judge the stream with its next windows. They are several if tokens come faster than answers."""

    def close(self) -> None: ...


AnyJudge = StreamJudge | WindowJudge


class ModelOptions(CoverageOptions, total=False):
    """The arguments that every guard takes that is a model: see `ModelGuard`."""

    only_when: Literal["suspect"] | None
    timeout: Seconds


class ModelGuard(CoverageGuard):
    """Judges streams with a model, which takes its time. A subclass opens a `StreamJudge` for each stream.

    `only_when: suspect`: until a hook before this one returns `suspect`, all text passes and the model is not
    asked. Then the model judges the whole stream, from its beginning, before more of it leaves. `timeout`:
    seconds for one judgement. A late one fails the request, closed.
    """

    @checked
    def __init__(
        self,
        *,
        only_when: Literal["suspect"] | None = None,
        timeout: Seconds = 5.0,
        debounce: int = 0,
        **options: Unpack[CoverageOptions],
    ) -> None:
        """`debounce`: see `Coverage`. Raises `ValueError` for an invalid or useless argument."""
        super().__init__(debounce=debounce, **options)
        self._only_when = only_when
        self._timeout = timeout
        self._dropped: set[asyncio.Task[Judged]] = set()
        """Cancelled judgements that have not ended yet."""

    @abstractmethod
    def open_judge(self, chunk: Chunk) -> AnyJudge:
        """A judge for the chunk's stream, which will be shown the stream from its beginning."""

    async def judge_prompt(self, request: GenerationRequest) -> Match | None:
        """The offence in the request's prompt, if there is one. Only its `entity` is used."""
        raise NotImplementedError(f"{type(self).__name__} judges no prompts")

    async def __call__(self, chunk: Chunk) -> Verdict:
        judging: _Judging | None = chunk.state.get("judging")
        if self._passes(chunk):
            if judging is not None:
                judging.drop(self._dropped)
            return self._unasked(chunk)
        stream = self._read(chunk)
        if self._only_when is not None and chunk.suspicion is None:
            return self._unasked_but_read(chunk, stream)
        if verdict := await self._judge_name(chunk):
            return verdict
        if judging is None:
            judging = self._begun_judging(chunk, stream.coverage)
            chunk.state["judging"] = judging
        try:
            await judging.go_on(chunk.is_final)
            verdict = self._verdict(chunk, stream)
        except BaseException:
            judging.drop(self._dropped)
            raise
        if chunk.is_final or isinstance(verdict, suppress | terminate | rewind):
            judging.drop(self._dropped)
        return verdict

    async def close(self) -> None:
        """Wait for cancelled judgements to end."""
        await asyncio.gather(*self._dropped, return_exceptions=True)

    async def _judge_prompt(self, request: GenerationRequest) -> PromptReply:
        shown = only_from(request, self._of)
        if (request.messages and not shown.messages) or (request.prompts and not shown.prompts):
            return request
        async with asyncio.timeout(self._timeout):
            offence = await self.judge_prompt(shown)
        return self._answer_prompt(request, [] if offence is None else [offence])

    async def _judge_name(self, chunk: Chunk) -> Verdict | None:
        """Judge the name of a tool call at its first chunk. None: the name allows the call."""
        name = self._own_name(chunk)
        offences: list[Match] = []
        if name:
            coverage = Coverage("hold", 1)
            coverage.add(name, 1)
            judging = self._begun_judging(chunk, coverage)
            try:
                await judging.go_on(is_final=True)
            finally:
                judging.drop(self._dropped)
            offences = coverage.offences
        return self._act_on_name(chunk, offences)

    def _begun_judging(self, chunk: Chunk, coverage: Coverage) -> "_Judging":
        return _Judging(partial(self.open_judge, chunk), coverage, self._timeout)


class _Judging:
    """One stream's judge, and the judgement that runs."""

    __slots__ = ("_coverage", "_judge", "_open", "_task", "_timeout")

    def __init__(self, open_judge: Callable[[], AnyJudge], coverage: Coverage, timeout: float) -> None:
        self._open: Callable[[], AnyJudge] | None = open_judge
        """None: it was called, or is not needed. It refers to the stream, whose state has this object."""
        self._judge: AnyJudge | None = None
        """None: it was not asked yet, or it is closed."""
        self._coverage = coverage
        self._timeout = timeout
        self._task: asyncio.Task[Judged] | None = None
        """Mode `release`: the judgement that runs while text leaves."""

    async def go_on(self, is_final: bool) -> None:
        """Have as much judged as the stream needs to continue, if the judge can say it. Raises the judge's
        errors, `TimeoutError`, and `JudgeError` for an answer that cannot be true."""
        coverage = self._coverage
        if self._task is not None and (is_final or self._task.done()):
            await self._finish(self._task)
        while not is_final and coverage.must_wait and not coverage.offences:
            if self._task is not None:
                await self._finish(self._task)
            elif coverage.has_unasked:
                coverage.judged(await self._ask(coverage.drain(), is_final=False))
            else:
                break  # the judge needs to see more, so text that may not be out is held
        if is_final and not coverage.is_complete:
            coverage.judged(await self._ask(coverage.drain(is_final=True), is_final=True))
        elif coverage.is_due and not is_final and self._task is None and not coverage.offences:
            self._task = asyncio.get_running_loop().create_task(self._ask(coverage.drain(), is_final=False))

    async def _finish(self, task: asyncio.Task[Judged]) -> None:
        self._coverage.judged(await task)
        self._task = None

    async def _ask(self, windows: Sequence[str], is_final: bool) -> Judged:
        if self._open is not None:
            self._judge, self._open = self._open(), None
        assert self._judge is not None
        async with asyncio.timeout(self._timeout):
            if isinstance(self._judge, WindowJudge):
                return await self._judge.judge_windows(windows, is_final)
            return await self._judge.judge("".join(windows), is_final)

    def drop(self, dropped: set[asyncio.Task[Judged]]) -> None:
        """Cancel the judgement that runs, and close the judge. `dropped` has the judgement until it ends."""
        self._open = None
        task, self._task = self._task, None
        if task is None:
            self._close()
            return
        dropped.add(task)
        task.add_done_callback(dropped.discard)
        task.add_done_callback(self._close_after)
        task.cancel()

    def _close_after(self, task: asyncio.Task[Judged]) -> None:
        if not task.cancelled():
            task.exception()  # nobody awaits the task any more
        self._close()

    def _close(self) -> None:
        judge, self._judge = self._judge, None
        if judge is not None:
            judge.close()
