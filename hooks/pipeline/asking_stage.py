"""Keeps the tool calls that wait for a person, and no other text (contract 3.21)."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from engine.protocol import Delta
from engine.streams.flow import Stage
from hooks.pipeline.ask import Question

logger = logging.getLogger("weir.hooks")

Decide = Callable[[Question], Coroutine[Any, Any, bool]]
"""Whether a person approves a tool call. It answers before a deadline; after it, False."""


class AskingStage(Stage):
    """A stage that follows the guard's once a call of the request waits.

    A call leaves when it is approved. The end of its output, with the finish reason, comes after all calls
    are decided, since a client acts on it.
    """

    __slots__ = ("_decide", "_ends", "_has_call", "_has_text", "_waiting", "_withdrawn")

    def __init__(self, decide: Decide) -> None:
        self._decide = decide
        self._waiting: dict[asyncio.Task[bool], Question] = {}
        """In the order of the calls."""
        self._withdrawn: list[asyncio.Task[bool]] = []
        self._ends: dict[int, Delta] = {}
        """The last deltas of outputs whose calls wait, by output."""
        self._has_call: set[int] = set()
        """Outputs of which a call has left."""
        self._has_text: set[int] = set()

    def follow(self, stage: Stage) -> None:
        """Take the place after `stage`, which runs."""
        self.flow, self.source, self.next = stage.flow, stage, stage.next
        stage.next = self
        self.flow.on_end = self._wait_for_all

    def ask(self, question: Question) -> None:
        index = question.call.index
        if not question.is_only_call:
            self._has_call.add(index)
        if not question.is_first_text:
            self._has_text.add(index)
        answer = asyncio.get_running_loop().create_task(self._decide(question))
        self._waiting[answer] = question
        answer.add_done_callback(self._answered)

    def _answered(self, answer: asyncio.Task[bool]) -> None:
        """A call leaves at once, not with the engine's next text. A flow that is over waits for all calls, or
        has dropped them."""
        if answer in self._waiting and not self.flow.is_over:
            self.flow.wait_for(self._leave())

    async def _leave(self) -> None:
        self._let_leave()

    def feed(self, delta: Delta) -> None:
        self._let_leave()
        index = delta.index
        if delta.is_blocked:
            self._drop(index)  # nothing of the output leaves after a hook has ended it
        if delta.finish_reason is not None and any(one.call.index == index for one in self._waiting.values()):
            self._ends[index] = delta
            return
        if delta.tool_call is not None:
            self._has_call.add(index)
        elif delta.text and delta.channel == "content":
            self._has_text.add(index)
        self.next.feed(delta if delta.finish_reason is None else self._end(delta))

    def _wait_for_all(self) -> None:
        self.flow.wait_for(self._wait())

    async def _wait(self) -> None:
        while self._waiting:
            await asyncio.wait(self._waiting, return_when=asyncio.FIRST_COMPLETED)
            self._let_leave()

    def _let_leave(self) -> None:
        """Let leave the calls that are decided, and the ends of their outputs."""
        for answer in [answer for answer in self._waiting if answer.done()]:
            question = self._waiting.pop(answer)
            call = question.call
            if (error := answer.exception()) is not None:
                logger.error("a person cannot be asked (%s); the call is refused", type(error).__name__)
            if error is None and answer.result():
                self._has_call.add(call.index)
                self.next.feed(call)
            elif question.text:
                gap = "\n\n" if call.index in self._has_text else ""
                self._has_text.add(call.index)
                self.next.feed(Delta(call.index, gap + question.text))
            if call.index not in {one.call.index for one in self._waiting.values()}:
                end = self._ends.pop(call.index, None)
                if end is not None:
                    self.next.feed(self._end(end))

    def _end(self, end: Delta) -> Delta:
        """The end of an output. It speaks of calls only if one has left."""
        if end.finish_reason == "tool_calls" and end.index not in self._has_call:
            return replace(end, finish_reason="stop")
        return end

    def _drop(self, index: int) -> None:
        self._withdraw([answer for answer, one in self._waiting.items() if one.call.index == index])

    def _withdraw(self, answers: list[asyncio.Task[bool]]) -> None:
        for answer in answers:
            del self._waiting[answer]
            answer.cancel()
        self._withdrawn += answers

    async def close(self) -> None:
        """Withdraw the questions that nobody has answered."""
        self._withdraw([*self._waiting])
        try:
            await asyncio.gather(*self._withdrawn, return_exceptions=True)
        finally:
            del self.flow, self.source  # the flow would wait for a garbage collection
