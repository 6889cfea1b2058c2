"""One stream with all its hooks: who is shown which text, and what all of them release. Without I/O."""

from dataclasses import replace

from engine.protocol import Delta, PromptScores, Token, Usage
from hooks.api import StreamContext, rewind, terminate
from hooks.pipeline.ask import Asking, HookReply
from hooks.pipeline.fragments import Fragment, TokenGroup, text_of, tokens_of
from hooks.pipeline.stage import Ending, GuardedRequest, HookStage, Settled


class Stream:
    """One channel of one output (one tool call, on that channel), and its stages in the hooks' order."""

    __slots__ = (
        "channel",
        "incomplete",
        "index",
        "is_announced",
        "is_plain",
        "stages",
        "tool_call",
        "waiting",
    )

    def __init__(
        self, guarded: GuardedRequest, first_delta: Delta, prompt_scores: PromptScores | None = None
    ) -> None:
        self.index = first_delta.index
        self.channel = first_delta.channel
        self.tool_call = first_delta.tool_call
        name = first_delta.tool_call.name if first_delta.tool_call else None
        which = guarded.request, first_delta.index, first_delta.channel, name, prompt_scores
        self.stages = [
            HookStage(guarded, hook, StreamContext(*which, place, guarded.suspicions))
            for place, hook in enumerate(guarded.hooks)
        ]
        self.is_plain = not any(hook.is_async for hook in guarded.hooks)
        self.waiting: list[TokenGroup] = []
        """Textless tokens that go with the text that follows. The ledger has them already."""
        self.is_announced = False
        """Whether a tool call's name has been released."""
        self.incomplete: list[Fragment] = []
        """Text that every hook released; it waits until its token is complete. Only outputs that may be
        rewound use it."""

    @property
    def is_empty_call(self) -> bool:
        """Whether it is a tool call without arguments that is not released yet. A call whose arguments were
        all withheld is none: the client would run it without them."""
        return self.tool_call is not None and not self.is_announced and not any(self.stages[0].pieces)

    def cut(self) -> None:
        """The next chunk is the last one, at a place that the client chose. The echo is always whole."""
        if self.channel != "echo":
            for stage in self.stages:
                stage.context.is_cut = True

    def delta(self, text: str, tokens: tuple[Token, ...], usage: Usage | None) -> Delta:
        return Delta(
            index=self.index,
            text=text,
            tokens=tokens,
            channel=self.channel,
            tool_call=self.tool_call,
            usage=usage,
        )

    def cleaned(self, delta: Delta) -> Delta:
        """The engine's delta without anything that no hook was shown (contract 5.3)."""
        if delta.prompt_token_ids is None and delta.prompt_scores is None and delta.tool_call is None:
            return delta
        return replace(delta, prompt_token_ids=None, prompt_scores=None, tool_call=self.tool_call)

    def join_waiting(self, fragments: list[Fragment]) -> bool:
        """Tie the tokens that waited for text to the first of `fragments`. Returns whether there were any."""
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

    @property
    def first_undecided(self) -> int | None:
        """The position of the first token that the hooks have not wholly decided; None: all are decided."""
        for stage in reversed(self.stages):
            if not stage.hook.is_shadow:
                for fragment in stage.held_fragments:
                    if fragment.positions is not None:
                        return fragment.positions[0]
        return None

    def feed(
        self,
        fragments: list[Fragment],
        *,
        is_final: bool,
        first: HookReply | None = None,
        num_decided: int | None = None,
    ) -> Asking[Settled]:
        """Take `fragments` through the hooks. `num_decided`: as in `HookStage.settle`.

        `first`: hooks before its place have let the fragments through, and its reply is of the hook at that
        place. If no hook touches or holds anything, `fragments` itself is released. Raises `HookError`.
        """
        ended: Ending | None = None
        for place, stage in enumerate(self.stages):
            if stage.is_closed or (first is not None and place < first.place):
                continue
            if not fragments and not is_final:
                break
            if first is not None and place == first.place:
                chunk, reply = first.chunk, first.reply
            else:
                chunk = stage.show(text_of(fragments), tokens_of(fragments), is_final)
                stage.ask.shown = chunk
                yield stage.ask
                reply = stage.ask.reply
                if stage.lets_through(chunk, reply):
                    continue
            fragments, ends = stage.settle(chunk, reply, fragments, num_decided)
            if ends is None:
                continue
            if ended is None or _weight(ends) > _weight(ended):
                ended = ends
            if isinstance(ends, terminate) and ends.after is None and ends.text is None:
                return [], ended
            # Later hooks see the rest as the stream's last chunk, unless the stream goes on after a rewind.
            is_final = isinstance(ended, terminate)
        return fragments, ended


def _weight(ends: Ending) -> int:
    """The heaviest of several verdicts that end things is obeyed."""
    return 0 if isinstance(ends, rewind) else 1 if ends.scope == "output" else 2
