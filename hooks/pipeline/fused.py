"""The stage of fused guards (`hooks.loading.fuse`): it reads one stream for their stages, which follow it.

While it reads, none of the guards is called. The stage holds all text that any of them would hold. Where the
automaton gives up, the stage passes all text on, and each guard is called. The stage then waits for up to
`MOST_WAIT` chunks, longer each time that it has read few. It reads again if the automaton accepts the text
that the guards hold.

A guard that changes text shows the next guards another text than it was shown. The stage then waits until the
change is out of reach.
"""

from collections import Counter
from collections.abc import Sequence

from hooks.api import Chunk, StreamContext, hold
from hooks.api.chunk import NOTHING_KEPT
from hooks.decisions.failure import HookFailure
from hooks.loading.fuse import Run
from hooks.loading.screen import Screened, State
from hooks.pipeline.ask import Ask, Asking, Reply
from hooks.pipeline.fragments import Fragment, HeldText, text_of
from hooks.pipeline.guarded_request import GuardedRequest
from hooks.pipeline.piece import Piece
from hooks.pipeline.stage import HookStage, Settled

MOST_READ = 256
"""Most characters that are read at once: of a chunk, or held by the guards. Guards read more text faster."""
ENOUGH = 16
"""Chunks that the automaton must read to be worth it."""
MOST_WAIT = 64
"""Most chunks for which the stage waits after the automaton has given up."""

APART = hold(0)
"""The verdict that passes all text on to the guards."""


class Reading:
    """One stream, and the stages of fused guards. It is called as a hook is, with each chunk."""

    __slots__ = (
        "_base",
        "_guards",
        "_held",
        "_kept",
        "_num_after",
        "_num_read",
        "_num_to_wait",
        "_screen",
        "_stages",
        "_state",
        "_text",
        "_unknown",
        "_wait",
        "counts",
        "num_characters",
    )

    def __init__(self, run: Run, stages: Sequence[HookStage], held: HeldText) -> None:
        """`stages`: of the guards. `held`: the text that is held in their place."""
        self._guards, self._screen, self._stages, self._held = run.guards, run.screen, stages, held
        self.counts: Counter[tuple[bool, ...]] = Counter()
        """The chunks that were read, by whether each guard held text."""
        self._text = ""
        """The last `_kept` characters of the stream."""
        self._kept = run.screen.width + 2 * MOST_READ
        self._state: State | None = None
        """The state after all text. None: the guards are called."""
        self._base = run.screen.start
        """The state `_num_after` characters before the end of the text, if no match is open there."""
        self._num_after = 0
        self._unknown = 0
        """Characters until `_base` is exact."""
        self._num_read = 0
        """Chunks read since the guards were called."""
        self.num_characters = 0
        """Those of these chunks, and of the text that the guards held before."""
        self._wait = 1
        self._num_to_wait = 1
        """Chunks left to wait: many if the automaton gave up often. At first it is one: the guards are called
        with the first chunk of a stream, and make their states."""

    def __call__(self, chunk: Chunk) -> hold:
        text, first = chunk.text_diff, self._state
        is_short = len(text) <= MOST_READ and not chunk.is_final
        if first is None and is_short:
            first = self._resumed()
        if first is not None:
            state = first.pieces.get(text)
            if state is None and is_short:
                state = self._screen.read_piece(first, text)
            if state is not None and is_short:
                self._state = state
                self._num_read += 1
                self.num_characters += len(text)
                self.counts[state.holds] += 1
                self._text = (self._text + text)[-self._kept :]
                return state.verdict
            self._leave(first)
        self._text = (self._text + text)[-self._kept :]
        self._num_after += len(text)
        return APART

    def _resumed(self) -> State | None:
        """The state after all text, if the automaton accepts the text that the guards hold. This reading
        holds that text then."""
        if any(stage.has_changed for stage in self._stages):
            for stage in self._stages:
                stage.has_changed = False
            self._base, self._num_after, self._unknown = self._screen.anywhere, 0, self._screen.width
        if self._num_to_wait or self._held.texts is not None:
            self._num_to_wait = max(0, self._num_to_wait - 1)
            return None
        num_held = sum([stage.held.num_characters for stage in self._stages])
        if num_held > min(MOST_READ, self._num_after) or not all(map(_may_skip, self._guards, self._stages)):
            return None
        length = len(self._text)
        if self._num_after > length:
            self._base, self._num_after = self._screen.anywhere, length
        decided = self._text[length - self._num_after : length - num_held]
        self._base, self._num_after = self._screen.read_over(self._base, decided), num_held
        self._unknown = max(0, self._unknown - len(decided))
        state = self._screen.read(self._base, self._text[length - num_held :])
        if self._unknown or state is None:
            return None
        self._held.replace([one for stage in reversed(self._stages) for one in stage.held.fragments])
        num_again = 0
        for stage in reversed(self._stages):
            num_again += stage.held.num_characters
            stage.context.move(-num_again)
            stage.held.replace(())
        self._num_read, self.num_characters = 0, num_held
        return state

    def _leave(self, state: State) -> None:
        """Have the guards called with the text that is held here, and with all later text."""
        before = self._text[: len(self._text) - self._held.num_characters]
        for guard, stage in zip(self._guards, self._stages, strict=True):
            guard.skip(stage.context.state, before)
            stage.context.move(self.num_characters - self._held.num_characters)
        self._state, self._base, self._num_after = None, self._screen.decided(state), 0
        self._wait = 1 if self._num_read >= ENOUGH else min(2 * self._wait, MOST_WAIT)
        self._num_to_wait = self._wait - 1


def _may_skip(guard: Screened, stage: HookStage) -> bool:
    return stage.ahead is None and guard.may_skip(stage.context.state)


class FusedStage(HookStage):
    """Reads a stream for the guards of a run. A failure of the reading counts as the first guard's (contract
    4.5). Each guard gets the counts of verdicts that it would have if it were called with each chunk, and an
    equal share of the time."""

    __slots__ = ("_reading", "_stages", "num_fused")

    def __init__(
        self, guarded: GuardedRequest, run: Run, context: StreamContext, stages: Sequence[HookStage]
    ) -> None:
        """`stages`: of the guards."""
        super().__init__(guarded, run.hook, context)
        if not context.keeps_text:
            self.text_diffs = context.text_diffs = NOTHING_KEPT
        self._counts_characters = False
        self._stages = stages
        self._reading = Reading(run, stages, self.held)
        self.num_fused = len(stages)
        self.tally = type(stages[0].tally)()
        reading = self._reading if run.hook.wrap is None else run.hook.wrap(self._reading)
        self.ask = Ask(run.hook, self.tally, reading, False)

    def leave(self) -> Asking[None]:
        chunk = self.ask.shown = Chunk(self.context, "", (), True)  # a final chunk ends the reading
        yield self.ask
        if isinstance(self.ask.reply, HookFailure):
            self.settle(chunk, self.ask.reply, [], None)

    def lets_through(self, chunk: Chunk, reply: Reply, piece: Piece) -> bool:
        if chunk.is_final:
            self._share_counts()
        return type(reply) is hold and reply.n == 0 and self.held.texts is None

    def settle(
        self, chunk: Chunk, reply: Reply, fragments: list[Fragment], num_decided: int | None
    ) -> Settled:
        if type(reply) is hold and reply.n is not None:
            return self.held.hold_back(reply.n, chunk.text_diff, fragments), None
        return super().settle(chunk, reply, fragments, num_decided)

    def abort(self) -> Asking[None]:
        self._close()
        self._share_counts()
        yield from ()

    def _fail(self, error: BaseException, fragments: list[Fragment]) -> None:
        num_shown = self._stages[0].context.count_shown() + self._reading.num_characters
        self.context.move(num_shown + len(text_of(fragments)))
        super()._fail(error, fragments)
        self._share_counts()

    def _share_counts(self) -> None:
        """Give the guards the counts. The stream has ended."""
        counts = self.tally.drain()
        for place, stage in enumerate(self._stages):
            stage.tally.count_shared(counts, self.num_fused)
            for holds, num_chunks in self._reading.counts.items():
                if holds[place]:
                    stage.tally.num_holds += num_chunks
                else:
                    stage.tally.num_emitted += num_chunks
        if counts.others:
            self._stages[0].tally.others.update(counts.others)
        self._reading.counts.clear()
