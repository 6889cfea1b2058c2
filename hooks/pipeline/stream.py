"""One stream with all its hooks, in order: each is shown the text that the one before it released.

A machine without I/O: a hook is asked by yielding an `Ask`, and the verdict comes back as the reply.
"""

from engine.protocol import Delta, PromptScores, Token, Usage
from engine.protocol.call_arguments import is_whole_object
from hooks.api import StreamContext, rewind, terminate
from hooks.pipeline.ask import Asking, HookReply
from hooks.pipeline.fragments import Fragment, TokenGroup
from hooks.pipeline.fused import APART, FusedStage
from hooks.pipeline.guarded_request import GuardedRequest
from hooks.pipeline.piece import Piece
from hooks.pipeline.stage import Ending, HookStage


class Stream:
    """One channel of one output, or one tool call, with a stage for each hook in their order."""

    __slots__ = (
        "_whole_at",
        "channel",
        "ended_by",
        "incomplete",
        "index",
        "is_announced",
        "kept",
        "stages",
        "tool_call",
        "waiting",
    )

    def __init__(
        self, guarded: GuardedRequest, first_delta: Delta, prompt_scores: PromptScores | None = None
    ) -> None:
        self.index, self.channel = first_delta.index, first_delta.channel
        self.tool_call = first_delta.tool_call
        name, call_index = (self.tool_call.name, self.tool_call.index) if self.tool_call else (None, None)
        which = guarded.request, self.index, self.channel, name, prompt_scores
        self.stages: list[HookStage] = []
        for place, hook in enumerate(guarded.hooks):
            state, keeps_text = guarded.states[id(hook)], hook.reads_text or self.tool_call is not None
            context = StreamContext(*which, place, guarded.suspicions, state, keeps_text, guarded.values)
            self.stages.append(HookStage(guarded, hook, context, call_index))
        runs = guarded.runs if self.tool_call is None else ()  # guards read arguments as JSON, by themselves
        for run in reversed(runs):
            context = StreamContext(*which, run.start, keeps_text=self.tool_call is not None)
            fused = self.stages[run.start : run.start + len(run.guards)]
            self.stages.insert(run.start, FusedStage(guarded, run, context, fused))
        self.waiting: list[TokenGroup] = []
        """Textless tokens that go with the text that follows. The ledger has them already."""
        self._whole_at = (0, False)
        """How many texts of its tool call's arguments had come, and whether these were a whole object."""
        self.is_announced = False
        """Whether a part of its tool call was released."""
        self.kept: list[Fragment] | None = None
        """Text of a tool call that every hook released; it waits for the call's end. None: text leaves at
        once."""
        if self.tool_call is not None and guarded.keeps_calls:
            self.kept = []
        self.ended_by = 0
        """The place of the hook whose verdict ended things, if one did."""
        self.incomplete: list[Fragment] = []
        """Text that every hook released; it waits until its token is complete. Only outputs that may be
        rewound use it."""

    @property
    def key(self) -> str | int:
        """The stream's name among those of its output: its channel, or its tool call's index."""
        return self.channel if self.tool_call is None else self.tool_call.index

    @property
    def is_empty_call(self) -> bool:
        """Whether it is a tool call without arguments that is not released yet. A call whose arguments were
        all withheld does not count: the client would run it without them."""
        return self.tool_call is not None and not self.is_announced and not any(self.stages[0].text_diffs)

    @property
    def has_whole_arguments(self) -> bool:
        """Whether the tool call's arguments are a whole JSON object, so that no more of them can come."""
        text_diffs = self.stages[0].text_diffs
        if self._whole_at[0] != len(text_diffs):  # each text after the call asks
            self._whole_at = len(text_diffs), is_whole_object("".join(text_diffs))
        return self._whole_at[1]

    @property
    def is_suppressed(self) -> bool:
        """Whether a hook suppressed some of its text."""
        return any(stage.is_suppressed and not stage.hook.is_shadow for stage in self.stages)

    def cut(self) -> None:
        """The next chunk is the last one, at a place that the client chose. The echo is always whole."""
        if self.channel != "echo":
            for stage in self.stages:
                stage.context.is_cut = stage.context.is_cut or not stage.is_ahead

    def delta(self, text: str, tokens: tuple[Token, ...], usage: Usage | None) -> Delta:
        return Delta(self.index, text, tokens, self.channel, self.tool_call, None, None, None, None, usage)

    def join_waiting(self, fragments: list[Fragment]) -> bool:
        """Tie the tokens that waited for text to the first of `fragments`. Returns whether there is one."""
        if not fragments:
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

    @property
    def first_undecided(self) -> int | None:
        """The position of the first token that the hooks have not wholly decided; None: all are decided."""
        for stage in reversed(self.stages):
            if not stage.hook.is_shadow:
                for fragment in stage.held.fragments:
                    if fragment.positions is not None:
                        return fragment.positions[0]
        return None

    def feed(
        self,
        piece: Piece,
        *,
        is_final: bool,
        answered: HookReply | None = None,
        num_decided: int | None = None,
        begin: int = 0,
    ) -> Asking[Ending | None]:
        """Show a piece to the hooks, which may change it. Returns the verdict that ends things, if one came.
        `num_decided`: as in `HookStage.settle`.

        `answered`: hooks before its place have let the piece through, and its reply is of the hook at that
        place. `begin`: the place of the first hook that is shown the piece. A closing text is released in
        content alone: otherwise it is in the verdict only. Raises `HookError`.
        """
        ended: Ending | None = None
        place = begin if answered is None else answered.place
        while place < len(self.stages):
            stage = self.stages[place]
            place += 1
            if stage.is_closed:
                if is_final:
                    yield from stage.abort()  # a hook in shadow mode whose verdict was refused
                continue
            if piece.left == [] and not is_final:
                break
            if answered is not None:
                chunk, reply, answered = answered.chunk, answered.reply, None
            else:
                chunk = stage.ask.shown = stage.show(piece, is_final)
                yield stage.ask
                reply = stage.ask.reply
                if reply is not APART:
                    place += stage.num_fused  # the fused stage has read the piece for its guards
                if stage.lets_through(chunk, reply, piece):
                    continue
            fragments, ends = stage.settle(chunk, reply, piece.fragments, num_decided)
            if stage.ahead is not None:
                fragments, ends = stage.without_ahead(fragments, ends)
            if ends is not None:
                if ended is None or weight(ends) > weight(ended):
                    ended, self.ended_by = ends, place - 1
                if self.channel != "content" and isinstance(ends, terminate) and ends.text:
                    fragments = fragments[:-1]
                if isinstance(ends, terminate) and ends.after is None and ends.text is None:
                    piece.become([])
                    return ended
                # Later hooks see the rest as the stream's last chunk, unless it continues after a rewind.
                is_final = isinstance(ended, terminate)
            piece.become(fragments)
        return ended


def weight(ends: Ending) -> int:
    """The weight of a verdict that ends things. The heaviest of several is obeyed."""
    return 0 if isinstance(ends, rewind) else 1 if ends.scope == "output" else 2
