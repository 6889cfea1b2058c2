"""A parser at work on one output: takes deltas, and gives deltas on their channels."""

from collections.abc import Callable
from dataclasses import replace

from engine.parsers.scan import Calls, Scan
from engine.parsers.tape import CONTENT, SettledText, Tape
from engine.protocol import Channel, Delta, Token, ToolCall
from engine.protocol.deltas import has_prompt, with_prompt_of

NO_TEXT = SettledText(CONTENT, "", ())


class OutputParser:
    """`feed` it an output's deltas. It returns deltas with the text that it has decided.

    Once its scan has returned, all further text is content. If the engine itself gives deltas on the parser's
    channel, the parser steps aside: it passes deltas on.
    """

    def __init__(
        self,
        channel: Channel,
        tape: Tape,
        scan: Scan[None],
        calls: Calls | None = None,
        after_call: Callable[[], Scan[None]] | None = None,
    ) -> None:
        """`channel`: the channel that the scan fills. `after_call`: a call that goes by ends the scan, and
        this one reads what follows."""
        self._channel = channel
        self._tape = tape
        self._scan = scan
        self._calls = calls or Calls()
        self._after_call = after_call
        self._call: ToolCall | None = None
        """The last call that went by."""
        self._is_done = False
        """Whether all further text is content."""
        self._first: Delta | None = None
        """The delta with the prompt's ids or scores. The first returned delta gets them."""

    def feed(self, delta: Delta) -> list[Delta]:
        """Read the next delta. Only the output's last delta has a finish reason."""
        if delta.channel == self._channel:
            self._step_aside()
        elif delta.tool_call != self._call and delta.tool_call is not None:
            self._pass_call(delta.tool_call)
        if has_prompt(delta):
            self._first = delta
        reads = delta.channel == "content" and not self._is_done
        made = self._read(delta) if reads else self._pass_on(delta)
        if made and self._first is not None:
            made[0] = with_prompt_of(made[0], self._first)
            self._first = None
        if delta.finish_reason == "stop" and self._calls.count:
            made[-1] = replace(made[-1], finish_reason="tool_calls")
        return made

    def _read(self, delta: Delta) -> list[Delta]:
        self._tape.put(delta)
        self._tape.ended = delta.finish_reason is not None
        self._tape.is_cut = delta.finish_reason == "length"
        self._run()
        made = self._drain(delta)
        return self._finished(made, delta) if self._tape.ended else made

    def _pass_on(self, delta: Delta) -> list[Delta]:
        if delta.finish_reason is not None:
            self._step_aside()
        made = self._drain(delta)
        waiting = self._tape.waiting
        if waiting and (delta.text or delta.tokens or delta.finish_reason):
            tokens = delta.tokens or ((Token(None, delta.text),) if delta.text else ())
            delta = replace(delta, tokens=(*waiting, *tokens))
            self._tape.waiting = ()
        return [*made, delta]

    def _pass_call(self, call: ToolCall) -> None:
        """A call begins. Text that is held becomes what it is now, and blanks alone belong to no stream."""
        self._call = call
        if self._after_call is None or self._is_done:
            return
        if self._tape.text.isspace():
            self._tape.drop(len(self._tape.text))
        self._step_aside()
        self._tape.ended = self._is_done = False
        self._scan = self._after_call()

    def _step_aside(self) -> None:
        if not self._is_done:
            self._tape.ended = True
            self._run()

    def _run(self) -> None:
        if next(self._scan, True):
            self._is_done = True
            self._tape.give(len(self._tape.text), CONTENT)

    def _drain(self, delta: Delta) -> list[Delta]:
        return [self._delta(settled, delta) for settled in self._tape.drain() if self._passes(settled)]

    def _passes(self, settled: SettledText) -> bool:
        return settled.stream.call is None or settled.stream.call.index < self._calls.limit

    def _delta(self, settled: SettledText, delta: Delta) -> Delta:
        channel, call = settled.stream
        return Delta(
            index=delta.index,
            text=settled.text,
            tokens=settled.tokens,
            channel=channel,
            tool_call=call,
            usage=delta.usage,
        )

    def _finished(self, made: list[Delta], delta: Delta) -> list[Delta]:
        waiting, self._tape.waiting = self._tape.waiting, ()
        if waiting or not made:
            # Tokens after the last text go to the stream of this text, and to its guards.
            end = SettledText(self._tape.last, "", waiting)
            made.append(self._delta(end if waiting and self._passes(end) else NO_TEXT, delta))
        last = replace(
            made[-1], finish_reason=delta.finish_reason, stop_reason=delta.stop_reason, is_cut=delta.is_cut
        )
        return [*made[:-1], last]
