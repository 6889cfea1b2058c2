"""One hook on one stream: its new text, the text that it holds, and the effect of its verdicts.

A machine without I/O: a hook is asked by yielding an `Ask`, and the verdict comes back as the reply.
"""

import logging

from engine.protocol import Delta
from hooks.api import (
    Chunk,
    Note,
    StreamContext,
    Verdict,
    ask,
    emit,
    hold,
    redact,
    rewind,
    suppress,
    suspect,
    terminate,
)
from hooks.api.chunk import NOTHING_KEPT
from hooks.decisions.failure import (
    BadVerdictError,
    HookError,
    HookFailure,
    count_failure,
    discard,
    no_verdict,
    place_of,
)
from hooks.decisions.log import StreamDecisions
from hooks.decisions.tally import JudgedTokens
from hooks.loading.loader import LoadedHook
from hooks.pipeline.ask import Ask, Asking, Question, Reply
from hooks.pipeline.fragments import (
    Fragment,
    HeldText,
    copies,
    cut,
    have_alternatives,
    text_of,
    without_restored,
)
from hooks.pipeline.guarded_request import GuardedRequest
from hooks.pipeline.piece import Piece
from hooks.pipeline.release import checked_text, count_judged, decide, num_held_by, without_alternatives

logger = logging.getLogger("weir.hooks")

Ending = terminate | rewind
"""A verdict that ends the request or the output, or rewinds the output."""

Settled = tuple[list[Fragment], Ending | None]
"""The released fragments, and the verdict that ends things, if one came."""


class HookStage:
    """One hook on one stream: the text that it was shown, the text that it holds, and its state."""

    __slots__ = (
        "_can_ask",
        "_counts_characters",
        "_decisions",
        "_gets_last_call",
        "_is_simple",
        "_keeps_tokens",
        "_suspicions",
        "ahead",
        "ask",
        "asked",
        "call",
        "context",
        "has_changed",
        "held",
        "hook",
        "is_ahead",
        "is_closed",
        "is_suppressed",
        "judged",
        "tally",
        "text_diffs",
    )

    num_fused = 0
    """The number of stages after this one for which this one reads. They are called when it gives up."""

    def __init__(
        self, guarded: GuardedRequest, hook: LoadedHook, context: StreamContext, call_index: int | None = None
    ) -> None:
        log = guarded.decisions
        self.hook = hook
        self.tally = guarded.tallies[hook.name]
        self.call = type(hook.call).__call__.__get__(hook.call)
        """The hook's `__call__`, looked up once."""
        self.ask = Ask(hook, self.tally, self.call, hook.is_async)
        """The question to the hook, for one chunk after another."""
        self.context = context
        if log is None and not context.keeps_text:
            context.text_diffs = NOTHING_KEPT
        self.text_diffs = context.text_diffs
        self._counts_characters = log is not None
        self._decisions = None
        if log is not None:
            of = context, hook, self.tally, log, guarded.hidden_values
            self._decisions = StreamDecisions(*of, call_index)
        self._suspicions = guarded.suspicions
        self._can_ask = context.channel == "tool_call" and guarded.can_ask and guarded.keeps_calls
        self.asked: ask | None = None
        """The hook has a person decide on the tool call."""
        self._keeps_tokens = guarded.options.rewritten_tokens == "keep"
        self.held = HeldText()
        self._is_simple = not hook.is_shadow and not hook.judges
        """Whether a hold of the hook only moves text. It has effect, and no judged tokens are counted."""
        self.ahead: str | None = None
        """Held text that left before the hook decided on it (contract 2.16). None: no text did."""
        self.is_ahead = False
        """All that the hook was shown has left, or its verdict at the stream's end will withhold it."""
        self.has_changed = False
        """The hook has changed text. The fused stage before it resets this."""
        self.is_closed = False
        """The hook is shown no more text of this stream."""
        self.is_suppressed = False
        """The hook suppressed text of this stream."""
        self._gets_last_call = True
        self.judged = JudgedTokens() if hook.judges else None
        """None: the hook asks no judge, or the count was reported."""

    def show(self, piece: Piece, is_final: bool) -> Chunk:
        """The chunk that shows the hook its new text. A final chunk is the hook's last call."""
        if not piece.is_read:
            piece.read()
        if piece.text:
            self.text_diffs.append(piece.text)
        if is_final:
            self._close()
        held = self.held.texts
        return Chunk(
            self.context,
            piece.text,
            piece.tokens,
            is_final,
            False,
            held,
            piece.num_incomplete,
            piece.restored,
        )

    def lets_through(self, chunk: Chunk, reply: Reply, piece: Piece) -> bool:
        """Whether the reply releases just the new text, untouched. If so, the verdict is counted here."""
        is_hold = type(reply) is hold
        if (
            self.held.texts is None
            and (
                (is_hold and type(reply.n) is int and reply.n == 0)
                or (type(reply) is emit and reply.text is chunk.text_diff)
            )
            and reply.unjudged == 0
            and (reply.alternatives or (piece.left is None and not have_alternatives(piece.tokens)))
            and (
                self.judged is None
                or (piece.left is None and self.judged.pass_on(piece.text, len(piece.tokens)))
            )
        ):
            if is_hold:
                self.tally.num_holds += 1
            else:
                self.tally.num_emitted += 1
            return True
        return False

    def settle(
        self, chunk: Chunk, reply: Reply, fragments: list[Fragment], num_decided: int | None
    ) -> Settled:
        """Carry out the reply on `fragments`, whose text the chunk showed.

        `num_decided`: how many of the output's tokens are decided; None: the output cannot be rewound.
        Raises `HookError` if the hook failed (contract 4.1), but for a hook in shadow mode.
        """
        is_shadow = self.hook.is_shadow
        own = copies(fragments) if is_shadow else fragments
        try:
            if isinstance(reply, ask):
                reply = self._ask_or_suppress(reply)
            num_pending = self.held.num_characters + len(chunk.text_diff)
            num_held = num_held_by(reply, chunk, num_pending)
            if type(reply) is hold and self._is_simple and reply.alternatives and reply.unjudged == 0:
                assert num_held is not None
                self.tally.num_holds += 1
                if self._decisions is not None:
                    self._decisions.moved_on(len(chunk.text_diff), num_pending, num_held)
                return self.held.hold_back(num_held, chunk.text_diff, own), None
            if num_held is not None:
                released, ends = self._hold_back(num_held, chunk, reply, own), None
            else:
                released, ends = self._decide(chunk, reply, own, num_decided)
            if self.judged is not None:
                count_judged(self.judged, reply, released, ends, chunk.is_final)
            elif getattr(reply, "unjudged", 0) != 0:
                raise BadVerdictError("it returned unjudged= without a true attribute judges")
        except BaseException as error:
            self._fail(error, fragments)
            if is_shadow:
                return fragments, None
            raise HookError.of(self.hook, error, self.context.request) from error
        if ends is not None or chunk.is_final:
            self._end_judging()
        if ends is not None:
            if is_shadow or isinstance(ends, terminate):
                self._close()
            if isinstance(ends, rewind) and not is_shadow:
                self._decisions = None  # the rewind was reported; the last call that follows reports nothing
        return (fragments, None) if is_shadow else (released, ends)

    def _hold_back(
        self, num_held: int, chunk: Chunk, verdict: emit | hold | redact | Note, fragments: list[Fragment]
    ) -> list[Fragment]:
        """Hold the last `num_held` of the pending characters. Returns the rest, as `HeldText.hold_back`."""
        num_pending = self.held.num_characters + len(chunk.text_diff)
        released = self.held.hold_back(num_held, chunk.text_diff, fragments)
        if isinstance(verdict, Note):
            self._note(verdict, num_pending)
        else:
            self.tally.count("hold" if isinstance(verdict, hold) else "emit")
        if self._decisions is not None:
            self._decisions.moved_on(len(chunk.text_diff), num_pending, num_held)
        return released if verdict.alternatives else without_alternatives(released)

    def _ask_or_suppress(self, verdict: ask) -> Verdict:
        """The verdict, or a suppress in its place if nobody can be asked (contract 3.21)."""
        if self.context.channel != "tool_call":
            raise BadVerdictError("it returned ask() for a text that is no tool call")
        checked_text(verdict.text or "")
        if self.hook.is_shadow:
            return verdict
        if not self._can_ask:
            return suppress(verdict.reason)
        self.asked = self.asked or verdict
        return verdict

    def question(self, call: Delta, is_first_text: bool, is_only_call: bool) -> Question:
        """The question to a person about the whole call."""
        asked, context = self.asked, self.context
        assert asked is not None
        tool = context.tool_name, context.is_own_tool
        of = self.hook.name, context.place, *tool, asked.reason, asked.text
        return Question(call, *of, is_first_text=is_first_text, is_only_call=is_only_call)

    def _end_judging(self, reason: str | None = None) -> None:
        """Report how much of the stream was judged, once. `reason`: why the stream ended early."""
        judged, self.judged = self.judged, None
        if judged is None:
            return
        if judged.was_asked:
            self.tally.count_unjudged(judged.max_unjudged)
        if self._decisions is not None and judged.num_released:
            self._decisions.judged(judged, reason)

    def _note(self, note: Note, num_pending: int) -> None:
        if isinstance(note, suspect) and not self.hook.is_shadow:  # contract 3.16
            self._suspicions.setdefault(self.context.place, str.__str__(note.reason))
        self.tally.count(note.action)
        if self._decisions is not None:
            self._decisions.noted(note, num_pending)

    def _decide(
        self, chunk: Chunk, reply: Reply, fragments: list[Fragment], num_decided: int | None
    ) -> Settled:
        if not isinstance(reply, Verdict):
            raise no_verdict(reply)
        verdict = reply
        if isinstance(verdict, rewind):
            verdict = self._rewind_or_terminate(verdict, fragments, num_decided)
        pending = [*self.held.fragments, *fragments]
        length = self.held.num_characters + len(chunk.text_diff)
        outcome = decide(verdict, pending, length, is_final=chunk.is_final, keep_tokens=self._keeps_tokens)
        self.held.replace(outcome.held)
        self.tally.count(outcome.action)
        self.has_changed = True
        if length and outcome.action == "suppress":
            self.is_suppressed = True
        if self._decisions is not None:
            self._decisions.decided(chunk, verdict, self.held.num_characters, without_restored(pending))
        return outcome.released, outcome.ends

    def _rewind_or_terminate(
        self, verdict: rewind, fragments: list[Fragment], num_decided: int | None
    ) -> Ending:
        """The rewind, or a terminate in its place if the output cannot go back (contract 8.3)."""
        if not self.hook.may_rewind:
            raise BadVerdictError("it returned rewind() without a true attribute may_rewind")
        if self.hook.is_shadow:
            return verdict
        left = verdict.after or 0
        for fragment in (*self.held.fragments, *fragments):
            left -= len(fragment.text)
            if fragment.positions and (left < 0 or not (left or fragment.text)):
                can_rewind = num_decided is not None and fragment.positions[0] >= num_decided
                return verdict if can_rewind else verdict.as_terminate
        return verdict.as_terminate

    def abort(self) -> Asking[None]:
        """Give the hook its last call for a stream that ended early (contract 2.6)."""
        if not self._gets_last_call or self.ask.is_abandoned:
            return
        self._close()
        chunk = Chunk(self.context, "", (), True, True, self.held.texts)
        if self._decisions is not None:
            self._decisions.aborted("" if self.is_ahead else without_restored(self.held.fragments))
        self._end_judging("aborted")
        self.ask.shown = chunk
        yield self.ask
        reply = self.ask.reply
        if isinstance(reply, HookFailure):
            logger.warning("hook %s failed on an aborted stream: %s", self.hook.name, place_of(reply.error))
        discard(reply)

    def without_ahead(self, released: list[Fragment], ends: Ending | None) -> Settled:
        """The text that the hook released now, without the text that has left before. That text cannot be
        taken back: the output ends if the hook releases other text in its place (contract 2.16)."""
        closing = released[-1:] if isinstance(ends, terminate) and ends.text else []
        released = released[: len(released) - len(closing)]
        ahead, text = self.ahead or "", text_of(released)
        length = min(len(ahead), len(text))
        rest = ahead[length:]
        is_decided = not (self.held.num_characters or self.context.is_cut or isinstance(ends, terminate))
        self.is_ahead = False
        if text[:length] != ahead[:length] or (rest and is_decided):
            name = self.hook.name
            logger.warning("hook %s changed text after its channel had been left; the output ends", name)
            return closing, ends if isinstance(ends, terminate) else terminate(name, scope="output")
        self.ahead = rest or None
        left, released = cut(released, length)
        tokens = [Fragment("", f.group, f.is_first, f.is_last) for f in left if f.group is not None]
        return [*tokens, *released, *closing], ends

    def leave(self) -> Asking[None]:
        """Have the stages that this one reads for called with the next text. Raises `HookError`."""
        yield from ()

    def give_up(self) -> Asking[list[Fragment]]:
        """The text that this stage holds for those that it reads for: they are shown it now. Raises
        `HookError`."""
        yield from self.leave()
        held = [*self.held.fragments]
        self.held.replace(())
        return held

    def _close(self, *, gets_last_call: bool = False) -> None:
        """The hook is shown no more text of this stream. `gets_last_call`: `abort` calls it, once."""
        self._gets_last_call = self._gets_last_call and gets_last_call
        if not self.is_closed:
            self.is_closed = True
            self.tally.num_streams += 1
            if self._counts_characters:
                self.tally.num_characters += self.context.count_shown()

    def _fail(self, error: BaseException, fragments: list[Fragment]) -> None:
        """The hook failed when it was shown `fragments`. A hook that returned a bad verdict does not know
        that the stream ends, so it gets a last call (contract 2.6)."""
        count_failure(self.hook, self.tally, error)
        self._close(gets_last_call=isinstance(error, BadVerdictError))
        if self._decisions is not None:
            self._decisions.failed(without_restored([*self.held.fragments, *fragments]), place_of(error))
        self._end_judging("error")
        self._decisions = None  # the failure was reported; the last call reports nothing more
