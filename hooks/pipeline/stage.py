"""One hook on one stream: what it is shown, what it holds, and what its verdicts release.

A machine without I/O: a hook is asked by yielding an `Ask`, and the verdict comes back as the reply.
"""

import inspect
import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NoReturn

from engine.protocol import GenerationRequest, Token, Usage
from hooks.api import Chunk, StreamContext, Verdict, emit, hold, redact, rewind, suppress, suspect, terminate
from hooks.loading.loader import LoadedHook
from hooks.pipeline.ask import Ask, Asking, Reply
from hooks.pipeline.decision import DecisionLog, StreamDecisions
from hooks.pipeline.failure import BadVerdictError, HookError, HookFailure, count_failure, place_of
from hooks.pipeline.fragments import Fragment, TokenGroup, take_from
from hooks.pipeline.options import PipelineOptions
from hooks.pipeline.release import decide, num_held_by, without_alternatives
from hooks.pipeline.tally import JudgedTokens, Tallies

logger = logging.getLogger("weir.hooks")

Ending = terminate | rewind
"""A verdict that ends the request or the output, or takes the output back."""

Settled = tuple[list[Fragment], Ending | None]
"""The released fragments, and the verdict that ends things, if one came."""


@dataclass(slots=True)
class GuardedRequest:
    """The facts that all parts of one request's guard share."""

    request: GenerationRequest
    """As the guard was opened for it; once hooks have admitted it, as they let it go on."""
    hooks: list[LoadedHook]
    tallies: Tallies
    """The pipeline's counts of what its hooks do."""
    options: PipelineOptions = field(default_factory=PipelineOptions)
    decisions: DecisionLog | None = None
    """None: no hook listens to decisions."""
    usage: Usage | None = None
    """The running totals, as the engine last told them."""
    num_rewinds: int = 0
    """How often hooks took one of the outputs back."""
    suspicions: dict[int, str] = field(default_factory=dict)
    """The first suspicion of each hook that has one, by the hook's place (contract 3.16)."""

    @property
    def tells_bytes(self) -> bool:
        """Whether the client gets the tokens' bytes, and a hook decides which ones (contract 8.4)."""
        sampling = self.request.sampling
        has_logprobs = sampling.logprobs is not None or sampling.prompt_logprobs is not None
        return has_logprobs and any(not hook.is_shadow for hook in self.hooks)

    @property
    def can_rewind(self) -> bool:
        """Whether hooks may take an output back once more (contract 8.3)."""
        return self.num_rewinds < self.options.max_rewinds and not self.request.is_searched


class HookStage:
    """One hook on one stream: what it was shown, what it holds, and its state."""

    __slots__ = (
        "_decisions",
        "_held",
        "_is_told",
        "_keeps_tokens",
        "_suspicions",
        "ask",
        "call",
        "context",
        "held",
        "hook",
        "is_closed",
        "judged",
        "num_held",
        "pieces",
        "tally",
    )

    def __init__(self, guarded: GuardedRequest, hook: LoadedHook, context: StreamContext) -> None:
        log = guarded.decisions
        self.hook = hook
        self.tally = guarded.tallies[hook.name]
        self.call = type(hook.call).__call__.__get__(hook.call)
        """The hook's `__call__`, looked up once."""
        self.ask = Ask(hook, self.call, hook.is_async)
        """The question to the hook, for one chunk after another."""
        self.context = context
        self.pieces = context.pieces
        self._is_told = log is not None
        self._decisions = (
            None if log is None else StreamDecisions(context, hook.name, hook.is_shadow, self.tally, log)
        )
        self._suspicions = guarded.suspicions
        self._keeps_tokens = guarded.options.rewritten_tokens == "keep"
        self._held: deque[Fragment] = deque()
        self.num_held = 0
        """Characters of the held text."""
        self.held: tuple[list[str], int] | None = None
        """The held text as a chunk has it. The list only grows or is replaced: earlier chunks go on reading
        their part of it."""
        self.is_closed = False
        """The hook has had its last call for this stream."""
        self.judged = JudgedTokens() if hook.judges else None
        """None: the hook asks no judge, or the account was told."""

    def show(self, text: str, tokens: tuple[Token, ...], is_final: bool) -> Chunk:
        """The chunk that shows the hook its new text. A final chunk is the hook's last call."""
        if text:
            self.pieces.append(text)
        if is_final:
            self._close()
        return Chunk(self.context, text, tokens, is_final, False, self.held)

    def lets_through(self, chunk: Chunk, reply: Reply) -> bool:
        """Whether the reply releases just the new text, untouched; then it is counted."""
        if (
            type(reply) is emit
            and reply.text is chunk.text_diff
            and reply.alternatives
            and self.held is None
            and self.judged is None
            and reply.unjudged == 0
        ):
            self.tally.num_emitted += 1
            return True
        return False

    def settle(
        self, chunk: Chunk, reply: Reply, fragments: list[Fragment], num_decided: int | None
    ) -> Settled:
        """Carry the reply out on `fragments`, whose text the chunk showed.

        `num_decided`: how many of the output's tokens are decided; None: the output cannot be taken back.
        Raises `HookError` if the hook failed (contract 4.1), but for a hook in shadow mode.
        """
        is_shadow = self.hook.is_shadow
        own = self._copies(fragments) if is_shadow else fragments
        try:
            num_held = num_held_by(reply, chunk, self.num_held + len(chunk.text_diff))
            if num_held is not None:
                released, ends = self._hold_back(num_held, chunk, reply, own), None
            else:
                released, ends = self._decide(chunk, reply, own, num_decided)
            if self.judged is not None:
                self._count_judged(self.judged, reply, released, ends, chunk.is_final)
            elif getattr(reply, "unjudged", 0) != 0:
                raise BadVerdictError("it said unjudged= without a true attribute judges")
        except BaseException as error:
            self._fail(error, chunk.text_diff)
            if is_shadow:
                return fragments, None
            raise HookError(self.hook.name) from error
        if ends is not None or chunk.is_final:
            self._end_judging()
        if ends is not None:
            if is_shadow or isinstance(ends, terminate):
                self._close()
            if isinstance(ends, rewind) and not is_shadow:
                self._decisions = None  # the rewind was told; the last call that follows tells nothing more
        return (fragments, None) if is_shadow else (released, ends)

    def _hold_back(
        self, num_held: int, chunk: Chunk, verdict: emit | hold | redact | suspect, fragments: list[Fragment]
    ) -> list[Fragment]:
        """Hold the last `num_held` of the pending characters. Returns the others, untouched.

        If the others are just `fragments`, and all of their tokens, it returns `fragments` itself.
        """
        held = self._held
        num_released = self.num_held + len(chunk.text_diff) - num_held
        self.num_held = num_held
        if not num_held:
            if held:
                fragments = [*held, *fragments]
                held.clear()
            self.held = None
        elif num_released:
            held += fragments
            fragments = take_from(held, num_released)
            self.held = ([chunk.pending[num_released:]], 1)
        else:
            held += fragments
            fragments = []
            pieces = [] if self.held is None else self.held[0]
            pieces.append(chunk.text_diff)
            self.held = (pieces, len(pieces))
        if isinstance(verdict, suspect):
            self._suspect(verdict.reason, num_released)
        else:
            self.tally.count("hold" if isinstance(verdict, hold) else "emit")
        if self._decisions is not None:
            self._decisions.moved_on(len(chunk.text_diff), num_held + num_released, num_held)
        return fragments if verdict.alternatives else without_alternatives(fragments)

    @staticmethod
    def _count_judged(
        judged: JudgedTokens, verdict: Verdict, released: list[Fragment], ends: Ending | None, is_final: bool
    ) -> None:
        """Count the released tokens, and those of them that are judged (contract 3.17)."""
        if isinstance(verdict, suppress):
            return
        if isinstance(ends, terminate) and ends.text:
            released = released[:-1]  # the closing text is the hook's own
        unjudged = getattr(verdict, "unjudged", 0)
        try:
            judged.release(released, unjudged)
        except ValueError as error:
            raise BadVerdictError(str(error)) from error
        if is_final and ends is None and unjudged:
            raise BadVerdictError("it ended a stream that its judge has not judged to the end")

    def _end_judging(self, reason: str | None = None) -> None:
        """Tell how much of the stream was judged, once. `reason`: why the stream ended early."""
        judged, self.judged = self.judged, None
        if judged is None:
            return
        if judged.was_asked:
            self.tally.count_unjudged(judged.max_unjudged)
        if self._decisions is not None and judged.num_released:
            self._decisions.judged(judged, reason)

    def _suspect(self, reason: str, num_pending: int) -> None:
        """Tell the hooks behind this one (contract 3.16)."""
        if not self.hook.is_shadow:
            self._suspicions.setdefault(self.context.place, str.__str__(reason))
        self.tally.count("suspect")
        if self._decisions is not None:
            self._decisions.suspected(reason, num_pending)

    def _decide(
        self, chunk: Chunk, reply: Reply, fragments: list[Fragment], num_decided: int | None
    ) -> Settled:
        if not isinstance(reply, Verdict):
            self._no_verdict(reply)
        verdict = reply
        if isinstance(verdict, rewind):
            verdict = self._rewind_or_terminate(verdict, fragments, num_decided)
        outcome = decide(
            verdict,
            [*self._held, *fragments],
            self.num_held + len(chunk.text_diff),
            is_final=chunk.is_final,
            keep_tokens=self._keeps_tokens,
        )
        pieces = [fragment.text for fragment in outcome.held]
        self._held = deque(outcome.held)
        self.num_held = sum(map(len, pieces))
        self.held = (pieces, len(pieces)) if pieces else None
        self.tally.count(outcome.action)
        if self._decisions is not None:
            self._decisions.decided(chunk, verdict, outcome.action, self.num_held)
        return outcome.released, outcome.ends

    @staticmethod
    def _no_verdict(reply: Reply) -> NoReturn:
        if isinstance(reply, HookFailure):
            raise reply.error
        if inspect.iscoroutine(reply):
            reply.close()  # a plain hook's coroutine is never awaited (contract 3.8)
        raise BadVerdictError(f"it returned {type(reply).__name__}, which is no verdict")

    @staticmethod
    def _copies(fragments: list[Fragment]) -> list[Fragment]:
        """Copies for a hook in shadow mode: its verdict is counted and has no effect (contract 3.10)."""
        return [Fragment(f.text, f.group and TokenGroup(f.group.shown), is_last=f.is_last) for f in fragments]

    def _rewind_or_terminate(
        self, verdict: rewind, fragments: list[Fragment], num_decided: int | None
    ) -> Ending:
        """The rewind, or a terminate in its place if there is no going back (contract 8.3)."""
        if not self.hook.may_rewind:
            raise BadVerdictError("it said rewind() without a true attribute may_rewind")
        if self.hook.is_shadow:
            return verdict
        left = verdict.after or 0
        for fragment in (*self._held, *fragments):
            left -= len(fragment.text)
            if fragment.positions and (left < 0 or not (left or fragment.text)):
                can_rewind = num_decided is not None and fragment.positions[0] >= num_decided
                return verdict if can_rewind else verdict.as_terminate
        return verdict.as_terminate

    def abort(self) -> Asking[None]:
        """Give the hook its last call for a stream that ended early (contract 2.6)."""
        if self.is_closed or self.ask.is_abandoned:
            return
        self._close()
        chunk = Chunk(self.context, "", (), True, True, self.held)
        if self._decisions is not None:
            self._decisions.aborted(chunk.pending)
        self._end_judging("aborted")
        self.ask.shown = chunk
        yield self.ask
        if isinstance(self.ask.reply, HookFailure):
            place = place_of(self.ask.reply.error)
            logger.warning("hook %s failed on an aborted stream: %s", self.hook.name, place)

    @property
    def held_fragments(self) -> Iterable[Fragment]:
        return self._held

    def _close(self) -> None:
        """The hook gets no more of this stream."""
        if not self.is_closed:
            self.is_closed = True
            self.tally.num_streams += 1
            if self._is_told:
                self.tally.num_characters += sum(map(len, self.pieces))

    def _fail(self, error: BaseException, text: str) -> None:
        """The hook failed when it was shown `text`: it is not called again for this stream."""
        self._close()
        count_failure(self.hook, self.tally, error)
        if self._decisions is not None:
            pieces, count = self.held or ([], 0)
            self._decisions.failed("".join(pieces[:count]) + text, place_of(error))
        self._end_judging("error")
