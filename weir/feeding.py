"""The guard of one answer, fed piece by piece."""

from engine.protocol import Delta
from hooks.api.decision import Decision
from hooks.pipeline.ask import Step
from hooks.pipeline.open_guard import OpenGuard
from weir.running import Runner

Item = str | Delta
"""A piece of an answer's text, or a delta, which can be of any channel."""


class Feeding:
    """The text that hooks release of one answer, as its pieces come."""

    __slots__ = (
        "_can_feed",
        "_cuts",
        "_finished",
        "_guard",
        "_runner",
        "decisions",
        "is_over",
        "stop_reason",
    )

    def __init__(
        self, guard: OpenGuard, runner: Runner, decisions: list[Decision], *, may_be_cut: bool = False
    ) -> None:
        """`decisions`: gets the hooks' decisions. `may_be_cut`: see `Guards.prompt`."""
        self._guard = guard
        self._runner = runner
        self._cuts = may_be_cut
        self._can_feed = True
        self._finished: set[int] = set()
        """The outputs that the source has ended."""
        self.decisions = decisions
        """The hooks' decisions so far, on the prompt and the answer. They have the withheld text: not for a
        log."""
        self.is_over = False
        """Whether hooks have ended the answer, so that the model's work can be cancelled."""
        self.stop_reason: str | None = None
        """The reason of the hook that ended the answer. None: no hook did."""

    def feed(self, item: Item) -> list[Delta]:
        """Show the hooks a piece of the answer. Returns what they release now. Raises `HookError`."""
        if not self._can_feed:
            raise RuntimeError("the answer has ended: open another one for the next")
        try:
            return self._took(self._runner.run(self._guard.feed, self._delta(item)))
        except BaseException:
            self._can_feed = False
            raise

    async def afeed(self, item: Item) -> list[Delta]:
        """As `feed`, for hooks of which one is async."""
        if not self._can_feed:
            raise RuntimeError("the answer has ended: open another one for the next")
        try:
            return self._took(await self._runner.wait(self._guard.feed, self._delta(item)))
        except BaseException:
            self._can_feed = False
            raise

    def end(self) -> list[Delta]:
        """Show the hooks that the answer is complete. Returns what they release now. Raises `HookError`."""
        return [released for delta in self._ends() if not self.is_over for released in self.feed(delta)]

    async def aend(self) -> list[Delta]:
        """As `end`, for hooks of which one is async."""
        return [
            released for delta in self._ends() if not self.is_over for released in await self.afeed(delta)
        ]

    def close(self) -> None:
        """Give the hooks their last calls if the answer has not ended (contract 2.6). What they hold is
        dropped. Closing twice is fine."""
        self._can_feed = False
        self._runner.run(self._guard.close)

    async def aclose(self) -> None:
        """As `close`, for hooks of which one is async."""
        self._can_feed = False
        await self._runner.wait(self._guard.close)

    def _delta(self, item: Item) -> Delta:
        if isinstance(item, str):
            _check_characters(item)
            return Delta(text=item)
        if not isinstance(item, Delta):
            raise TypeError(f"a piece of an answer is a str or a Delta, not {type(item).__name__}")
        if not 0 <= item.index < self._guard.request.num_outputs:
            raise ValueError(f"a delta's index is that of an output of the request, not {item.index}")
        _check_characters(item.text)
        if item.tool_call is not None:
            _check_characters(item.tool_call.name)
        if item.finish_reason is not None:
            self._finished.add(item.index)
        return item

    def _ends(self) -> list[Delta]:
        outputs = range(self._guard.request.num_outputs)
        return [
            Delta(index=index, finish_reason="stop", is_cut=self._cuts)
            for index in outputs
            if index not in self._finished
        ]

    def _took(self, step: Step) -> list[Delta]:
        for delta in step.released:
            if delta.is_blocked:
                self.stop_reason = str(delta.stop_reason)
        if step.is_over:
            self.is_over = True
            self._can_feed = False
        return step.released


def _check_characters(text: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            reason = "the source yields half a surrogate pair (U+D800 to U+DFFF), which is no character"
            raise ValueError(reason) from None
