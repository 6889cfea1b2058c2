"""One hook on one stream, and a stream with all its hooks: who is shown what, what comes of the verdicts."""

import asyncio
import inspect
import logging
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Literal

from engine.protocol import Delta, FinishReason, GenerationRequest, Token, Usage
from hooks.api import Chunk, Emit, Rewind, StreamContext, Terminate, Verdict
from hooks.loading.alarm import interrupt
from hooks.loading.async_call import AsyncCall
from hooks.loading.loader import LOAD_TIMEOUT, LoadedHook
from hooks.pipeline.decision import Decision, Witness
from hooks.pipeline.release import BadVerdictError, Fragment, Outcome, TokenGroup, decide, text_of, tokens_of
from hooks.pipeline.tally import Tallies, Tally

logger = logging.getLogger("weir.hooks")


class HookError(RuntimeError):
    """A hook failed its request, closed (contract 4.1). `hook` names it; the message names nothing."""

    def __init__(self, hook: str) -> None:
        super().__init__("A guardrail failed, so the request was ended.")
        self.hook = hook


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """What holds for every hook."""

    finish_reason: FinishReason = "content_filter"
    """Of an output that a hook ended; `stop` is TensorRT-LLM's (contract 3.3)."""
    hook_timeout: float = 10.0
    """Seconds that one call of a hook may take (contract 4.1)."""
    hook_load_timeout: float = LOAD_TIMEOUT
    """Seconds that it may take to import and build one."""
    rewritten_tokens: Literal["withhold", "keep"] = "withhold"
    """Whether the tokens of rewritten text pass, as TensorRT-LLM lets them (contract 3.6)."""
    usage: Literal["generated", "released"] = "generated"
    """Which tokens `Usage` counts (contract 6.1)."""
    max_rewinds: int = 8
    """How often hooks may have one request's outputs go back; after that, they end it."""


class Stage:
    """One hook on one stream: what it was shown, what it holds, and its state.

    Each chunk takes two steps: `ask` shows it to the hook; `settle` carries its verdict out on fragments. If
    the verdict lets through just what was shown, as most do, the second has nothing to do.
    """

    __slots__ = (
        "_held",
        "_held_text",
        "_keeps_tokens",
        "_num_held",
        "call",
        "closed",
        "context",
        "held",
        "hook",
        "pieces",
        "tally",
        "timeout",
        "witness",
    )

    def __init__(
        self,
        hook: LoadedHook,
        context: StreamContext,
        tally: Tally,
        options: PipelineOptions,
        decisions: list[Decision] | None = None,
    ) -> None:
        """`decisions`: where to put what the hook decides; None: nobody wants to know."""
        self.hook = hook
        self.witness = None if decisions is None else Witness(context, hook.name, hook.is_shadow, decisions)
        # What calling it calls, looked up once.
        self.call = type(hook.call).__call__.__get__(hook.call)
        self.context = context
        self.pieces = context.pieces
        self.tally = tally
        self.timeout = options.hook_timeout
        self._keeps_tokens = options.rewritten_tokens == "keep"
        self._held: list[Fragment] = []
        self._held_text: list[str] = []
        self._num_held = 0
        self.held: tuple[list[str], int] | None = None
        """The held text as a chunk has it."""
        self.closed = False
        """The hook has had its last call for this stream."""

    def ask(self, text: str, tokens: tuple[Token, ...], is_final: bool) -> tuple[Chunk, Any]:
        """Show a plain hook what is new; returns its verdict, whatever that is. Raises what it raises."""
        chunk = self._chunk(text, tokens, is_final)
        started = monotonic()
        verdict = self.call(chunk)
        took = monotonic() - started
        self.tally.seconds += took
        if took > self.timeout:
            raise TimeoutError("its deadline passed")
        return chunk, verdict

    async def ask_async(self, text: str, tokens: tuple[Token, ...], is_final: bool) -> tuple[Chunk, Any]:
        """The same for an async hook."""
        chunk = self._chunk(text, tokens, is_final)
        started = monotonic()
        try:
            return chunk, await self._awaited(chunk)
        finally:
            self.tally.seconds += monotonic() - started

    def lets_through(self, chunk: Chunk, verdict: Any) -> bool:
        """Whether the verdict releases just what the hook was shown, untouched; then it is counted."""
        is_same = type(verdict) is Emit and verdict.text is chunk.text_diff and verdict.alternatives
        if is_same and self.held is None:
            self.tally.num_emitted += 1
            return True
        return False

    def settle(
        self, chunk: Chunk, verdict: Any, fragments: list[Fragment], num_decided: int | None
    ) -> tuple[list[Fragment], Terminate | Rewind | None]:
        """Carry the verdict out on `fragments`, whose text the chunk showed. Returns what is released, and
        the verdict if it ends things. Raises `BadVerdictError`."""
        if not isinstance(verdict, Verdict):
            if inspect.iscoroutine(verdict):
                verdict.close()  # what a plain hook returned is not awaited (contract 3.8)
            raise BadVerdictError(f"it returned {type(verdict).__name__}, which is no verdict")
        if isinstance(verdict, Rewind):
            verdict = self._possible(verdict, fragments, num_decided)
        if self.hook.is_shadow:
            # A copy, so that what it says is counted and has no effect.
            copies = [
                Fragment(f.text, f.group and TokenGroup(f.group.shown), is_last=f.is_last) for f in fragments
            ]
            ends = self._decide(chunk, verdict, copies).ends
            self.closed = self.closed or ends is not None
            return fragments, None
        outcome = self._decide(chunk, verdict, fragments)
        self.closed = self.closed or isinstance(outcome.ends, Terminate)
        if isinstance(outcome.ends, Rewind):
            self.witness = None  # of its last call nothing is to be told that was not told now
        return outcome.released, outcome.ends

    def _possible(
        self, verdict: Rewind, fragments: list[Fragment], num_decided: int | None
    ) -> Rewind | Terminate:
        """A terminate, where there is no going back."""
        if not self.hook.may_rewind:
            raise BadVerdictError("it said rewind() without a true attribute may_rewind")
        if self.hook.is_shadow:
            return verdict  # as it would have been
        left = verdict.after or 0
        for fragment in (*self._held, *fragments):
            left -= len(fragment.text)
            if fragment.positions and (left < 0 or not (left or fragment.text)):
                can_rewind = num_decided is not None and fragment.positions[0] >= num_decided
                return verdict if can_rewind else verdict.instead
        return verdict.instead

    async def abort(self) -> None:
        """The last call of a stream that ended before its time; nothing comes of it (contract 2.6)."""
        if self.closed:
            return
        self.closed = True
        chunk = self._chunk("", (), is_final=True, aborted=True)
        if self.witness is not None:
            self.witness.aborted(chunk.pending)
        try:
            if self.hook.is_async:
                await self._awaited(chunk)
            else:
                self.call(chunk)
        except BaseException as error:
            if self.is_cancelled(error):
                raise
            logger.warning("hook %s failed on an aborted stream: %s", self.hook.name, place_of(error))

    @property
    def undecided(self) -> list[Fragment]:
        """What the hook holds."""
        return self._held

    def fail(self, error: BaseException, text: str) -> None:
        """The hook raised, or gave what is no verdict, when it was shown `text`: it is not called again for
        this stream."""
        self.closed = True
        count_failure(self.hook, self.tally, error)
        if self.witness is not None:
            pieces, count = self.held or ([], 0)
            self.witness.failed("".join(pieces[:count]) + text, place_of(error))

    def is_cancelled(self, error: BaseException) -> bool:
        return self.hook.is_async and is_cancelled(error)

    async def _awaited(self, chunk: Chunk) -> Any:
        call = AsyncCall(self.call(chunk))
        try:
            return await call.within(self.timeout)
        finally:
            if call.rest is not None:
                self.closed = True  # a last call would not come after this one (contract 2.3)
                self.hook.keep(call.rest)

    def _chunk(self, text: str, tokens: tuple[Token, ...], is_final: bool, aborted: bool = False) -> Chunk:
        self.closed = is_final
        if text:
            self.pieces.append(text)
        return Chunk(self.context, text, tokens, is_final, aborted, self.held)

    def _decide(self, chunk: Chunk, verdict: Verdict, fragments: list[Fragment]) -> Outcome:
        pending = fragments
        if self._held:
            self._held.extend(fragments)
            pending = self._held
        outcome = decide(
            verdict,
            pending,
            self._num_held + len(chunk.text_diff),
            is_final=chunk.is_final,
            keep_tokens=self._keeps_tokens,
        )
        if outcome.held or self._held:
            self._keep(outcome.held, chunk.text_diff)
        self.tally.count(outcome.action)
        if self.witness is not None:
            self.witness.decided(chunk, verdict, outcome.action, self._num_held)
        return outcome

    def _keep(self, held: list[Fragment], text_diff: str) -> None:
        # `_held_text` is only appended to or replaced: chunks already made go on reading their part of it.
        if held is self._held:
            self._held_text.append(text_diff)
            self._num_held += len(text_diff)
        else:
            self._held = list(held)
            self._held_text = [fragment.text for fragment in held]
            self._num_held = sum(map(len, self._held_text))
        self.held = (self._held_text, len(self._held_text)) if held else None


Asked = tuple[int, Chunk, Any]
"""A stage by its place, the chunk that its hook was shown, and what the hook said."""


class Stream:
    """One channel of one output (one tool call, on that channel), and its stages in the hooks' order."""

    __slots__ = ("announced", "channel", "index", "is_plain", "parting", "stages", "tool_call", "waiting")

    def __init__(
        self,
        request: GenerationRequest,
        delta: Delta,
        hooks: list[LoadedHook],
        tallies: Tallies,
        options: PipelineOptions,
        decisions: list[Decision] | None = None,
    ) -> None:
        """The stream that `delta` is the first of."""
        self.index = delta.index
        self.channel = delta.channel
        self.tool_call = delta.tool_call
        name = delta.tool_call.name if delta.tool_call else None
        self.stages = [
            Stage(
                hook,
                StreamContext(request, delta.index, delta.channel, name),
                tallies[hook.name],
                options,
                decisions,
            )
            for hook in hooks
        ]
        self.is_plain = not any(hook.is_async for hook in hooks)
        self.waiting: list[TokenGroup] = []
        """Textless tokens that go with the text that follows. The ledger knows them already."""
        self.announced = False
        """A tool call's name has been released."""
        self.parting: list[Fragment] = []
        """Released by every hook, and part of a token that is not, where text leaves in whole tokens."""

    def delta(self, text: str, tokens: tuple[Token, ...], usage: Usage | None) -> Delta:
        """A delta of this stream."""
        return Delta(
            index=self.index,
            text=text,
            tokens=tokens,
            channel=self.channel,
            tool_call=self.tool_call,
            usage=usage,
        )

    def join_waiting(self, fragments: list[Fragment]) -> bool:
        """Tie the tokens that waited for text to the first of `fragments`. Whether there were any."""
        if not self.waiting or not fragments:
            return False
        first = fragments[0].group
        if first is None:
            first = TokenGroup(())
            fragments[0] = Fragment(fragments[0].text, first)
        for group in reversed(self.waiting):
            group.follows = first
            first.shown = group.tokens + first.shown
        self.waiting = []
        return True

    def cleaned(self, delta: Delta) -> Delta:
        """The engine's delta as a client may have it: with nothing that no hook was shown (contract 5.3)."""
        if delta.prompt_token_ids is None and delta.tool_call is None:
            return delta
        return replace(delta, prompt_token_ids=None, tool_call=self.tool_call)

    def pass_through(self, text: str, tokens: tuple[Token, ...]) -> Asked | None:
        """Show plain hooks, one after another, what is new, for as long as they let it through. Returns the
        first that does otherwise, or None. Raises `HookError`."""
        started = monotonic()
        for stage in self.stages:
            if stage.closed:
                continue
            # `Stage.ask` and `lets_through`, spelt out: this is run for every chunk and hook.
            call, held, tally = stage.call, stage.held, stage.tally
            stage.pieces.append(text)
            chunk = Chunk(stage.context, text, tokens, False, False, held)
            try:
                verdict = call(chunk)
                ended = monotonic()
                took = ended - started
                tally.seconds += took
                if took > stage.timeout:
                    raise TimeoutError("its deadline passed")
            except BaseException as error:
                stage.fail(error, text)
                if stage.hook.is_shadow:
                    started = monotonic()
                    continue
                raise HookError(stage.hook.name) from error
            started = ended
            if type(verdict) is Emit and verdict.text is text and verdict.alternatives and held is None:
                tally.num_emitted += 1
            else:
                return self.stages.index(stage), chunk, verdict
        self.announced = True
        return None

    @property
    def undecided(self) -> int | None:
        """The position of the first token that hooks have not wholly decided; None: there is none."""
        for stage in reversed(self.stages):
            if not stage.hook.is_shadow:
                for fragment in stage.undecided:
                    if fragment.positions is not None:
                        return fragment.positions[0]
        return None

    async def feed(
        self,
        fragments: list[Fragment],
        *,
        is_final: bool,
        asked: Asked | None = None,
        num_decided: int | None = None,
    ) -> tuple[list[Fragment], Terminate | Rewind | None]:
        """Take `fragments` through the hooks; `asked`: as far as that, they let it through already.
        `num_decided`: how many of the output's tokens are; None: it cannot be taken back.

        Returns what all of them released, which is `fragments` itself where none touched or held anything,
        and the verdict that ends the request or takes the output back, if one came. Raises `HookError`.
        """
        ended: Terminate | Rewind | None = None
        for i, stage in enumerate(self.stages):
            if (asked is not None and i < asked[0]) or stage.closed:
                continue
            if not fragments and not is_final:
                break
            answer = asked[1:] if asked is not None and i == asked[0] else None
            fragments, ends = await self._take(stage, fragments, is_final, answer, num_decided)
            if ends is None:
                continue
            if ended is None or _weight(ends) > _weight(ended):
                ended = ends
            if isinstance(ends, Terminate) and ends.after is None and ends.text is None:
                return [], ended
            # Later hooks see what is still released as the stream's last chunk, unless it will go on.
            is_final = isinstance(ended, Terminate)
        return fragments, ended

    async def _take(
        self,
        stage: Stage,
        fragments: list[Fragment],
        is_final: bool,
        answer: tuple[Chunk, Any] | None,
        num_decided: int | None,
    ) -> tuple[list[Fragment], Terminate | Rewind | None]:
        try:
            if answer is None:
                new = text_of(fragments), tokens_of(fragments), is_final
                answer = await stage.ask_async(*new) if stage.hook.is_async else stage.ask(*new)
                if stage.lets_through(*answer):
                    return fragments, None
            return stage.settle(*answer, fragments, num_decided)
        except BaseException as error:
            if stage.is_cancelled(error):
                raise
            stage.fail(error, text_of(fragments))
            if stage.hook.is_shadow:
                return fragments, None
            raise HookError(stage.hook.name) from error


def _weight(ends: Terminate | Rewind) -> int:
    """Of several verdicts that end things, the heaviest is obeyed."""
    return 0 if isinstance(ends, Rewind) else 1 if ends.scope == "output" else 2


def count_failure(hook: LoadedHook, tally: Tally, error: BaseException) -> None:
    """And log it."""
    tally.count("error")
    # A hook's author may have put a text into the exception's message: by default, only its type and place
    # are logged.
    logger.error("hook %s failed: %s", hook.name, place_of(error))
    logger.debug("hook %s failed", hook.name, exc_info=error)


def is_cancelled(error: BaseException) -> bool:
    """Whether the request is being cancelled, rather than an async hook raising what it likes."""
    task = asyncio.current_task()
    is_cancelling = task is not None and task.cancelling() > 0
    return isinstance(error, GeneratorExit) or (isinstance(error, asyncio.CancelledError) and is_cancelling)


def place_of(error: BaseException) -> str:
    """An exception's type and the line that raised it; never its message, which may hold model output."""
    if isinstance(error, BadVerdictError):
        return str(error)  # ours, and names no text
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        if traceback.tb_next.tb_frame.f_code is interrupt.__code__:
            break  # where the alarm found the hook
        traceback = traceback.tb_next
    if traceback is None:
        return type(error).__name__
    return f"{type(error).__name__} at {traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"
