"""A pipeline opened for one request: its outputs, their streams, and the order that their tokens leave in."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

from engine.protocol import Delta, EngineError, FinishReason, GenerationRequest, Usage
from engine.protocol import Rewind as EngineRewind
from hooks.api import Rewind, Terminate
from hooks.loading.loader import LoadedHook
from hooks.pipeline.decision import Decision
from hooks.pipeline.delivery import Delivery, DiffersError
from hooks.pipeline.release import Fragment, Ledger, are_aligned, fragments_of, pieces_of, spoil
from hooks.pipeline.stage import Asked, PipelineOptions, Stream
from hooks.pipeline.tally import Tallies
from hooks.prompts.admission import RefusedError, admit

logger = logging.getLogger("weir.hooks")


class _Output:
    """One choice: its open streams by channel and tool call, and its tokens' order across them."""

    __slots__ = ("delivery", "ended_calls", "finished", "has_call", "index", "ledger", "streams")

    def __init__(self, index: int, delivery: Delivery | None = None) -> None:
        self.index = index
        self.delivery = delivery
        """What a client has of it; None: it is never taken back."""
        self.streams: dict[str | int, Stream] = {}
        """By channel; tool calls by their index."""
        self.ended_calls: set[int] = set()
        """Indices of the tool calls that are over."""
        self.has_call = False
        """Something of a tool call was released."""
        self.ledger = Ledger()
        self.finished = False


class Guard:
    """A pipeline opened for one request: this request's own state, dropped with it."""

    def __init__(
        self,
        request: GenerationRequest,
        hooks: list[LoadedHook],
        tallies: Tallies,
        options: PipelineOptions,
        can_rewind: bool = False,
        decisions: list[Decision] | None = None,
    ) -> None:
        """`tallies`: where the pipeline counts what its hooks do. `can_rewind`: whether the engine can.
        `decisions`: where to put what the hooks decide; None: nobody wants to know."""
        self.request = request
        """As it was opened for; once hooks have admitted it, as they let it go on."""
        self._hooks = hooks
        self._options = options
        self._tallies = tallies
        self._decisions = decisions
        self.may_rewind = can_rewind and any(hook.may_rewind and not hook.is_shadow for hook in hooks)
        self.rewind: EngineRewind | None = None
        self._num_rewinds = 0
        self._outputs = [
            _Output(i, Delivery() if self.may_rewind else None) for i in range(request.num_outputs)
        ]
        self._counts_released = options.usage == "released"
        self._usage: Usage | None = None
        self._num_released = 0
        self._num_reasoning = 0
        self._terminated = False

    @property
    def reads_prompts(self) -> bool:
        return any(hook.on_request is not None for hook in self._hooks)

    @property
    def decides_prompts(self) -> bool:
        return any(hook.on_request is not None and not hook.is_shadow for hook in self._hooks)

    @property
    def cut_short(self) -> bool:
        return self._terminated and all(output.finished for output in self._outputs)

    async def admit(self, shown: GenerationRequest) -> list[Delta] | None:
        seconds = self._options.hook_timeout
        admission = await admit(shown, self._hooks, self._tallies, seconds, self._decisions)
        self.request, refusal = admission.request, admission.refusal
        if refusal is None:
            return None
        if refusal.text is None:
            raise RefusedError(refusal.reason, self.request)
        return await self._decline(refusal.reason, refusal.text, admission.later)

    async def _decline(self, reason: str, text: str, later: Sequence[LoadedHook]) -> list[Delta]:
        """Answer with a refusal's text, as though every output had been terminated with it at once."""
        self._terminated = True
        self._usage = Usage(0, 0)
        released: list[Delta] = []
        for output in self._outputs:
            first = Delta(index=output.index)
            stream = Stream(self.request, first, list(later), self._tallies, self._options, self._decisions)
            output.streams[first.channel] = stream
            out, _ = await stream.feed([Fragment(text)], is_final=True)
            output.finished = True
            released += [stream.delta(*piece, self._usage) for piece in pieces_of(out, output.ledger)]
            released.append(self._finish_delta(output, self._options.finish_reason, reason))
        return released

    def feed(self, delta: Delta) -> Coroutine[Any, Any, list[Delta]]:
        return self._feed_again(delta) if self.may_rewind else self._feed(delta)

    async def _feed_again(self, delta: Delta) -> list[Delta]:
        """Feed an output that may have been fed all this before."""
        self.rewind = None
        output = self._outputs[delta.index]
        assert output.delivery is not None
        num_decisions = len(self._decisions or ())
        is_known = output.delivery.feed(delta)
        try:
            return await self._feed(delta)
        except DiffersError:
            logger.warning("hooks release something else of a text that was rewound than they did before")
            output.finished = False
            return self._counted(await self._terminate(output, Terminate(output.delivery.reason)))
        finally:
            if is_known and self._decisions is not None:  # so are the decisions, but for those that end it
                news = self._decisions[num_decisions:]
                self._decisions[num_decisions:] = [d for d in news if d.action in ("terminate", "error")]

    async def _feed(self, delta: Delta) -> list[Delta]:
        output = self._outputs[delta.index]
        if delta.usage is not None:
            self._usage = delta.usage
        if output.finished:
            return []
        key = delta.channel if delta.tool_call is None else delta.tool_call.index
        stream = output.streams.get(key)
        released: list[Delta] = []
        if stream is None:
            released, stream = await self._begin(output, key, delta)
            if stream is None:
                return self._counted(released)
        asked: Asked | None = None
        # Nothing is undecided: if no hook touches or holds anything, the delta may go as it is.
        if (
            stream.is_plain
            and delta.finish_reason is None
            and not (output.ledger.groups or stream.waiting)
            and are_aligned(delta.tokens, delta.text)
        ):
            asked = stream.pass_through(delta.text, delta.tokens)
            if asked is None:
                if delta.tool_call is not None:
                    output.has_call = True
                if output.delivery is not None:
                    output.delivery.pass_on(delta)
                released += self._new(output, [stream.cleaned(delta)])
                return self._counted(released)
        released += await self._vet(output, stream, delta, asked)
        if delta.finish_reason is not None and not output.finished:
            released += await self._finish(output, stream, delta)
        return self._counted(released)

    async def _begin(
        self, output: _Output, key: str | int, delta: Delta
    ) -> tuple[list[Delta], Stream | None]:
        """The stream that the delta is the first of, if no hook ends the output on an earlier one's end."""
        released = await self._end_earlier(output, delta)
        if output.finished:
            return released, None
        output.streams[key] = Stream(
            self.request, delta, self._hooks, self._tallies, self._options, self._decisions
        )
        return released, output.streams[key]

    async def _end_earlier(self, output: _Output, delta: Delta) -> list[Delta]:
        """End the streams that the first delta of another ends: the prompt's echo, and an earlier tool call.

        Raises `EngineError` for more of a call that has ended: its hooks have had their last call.
        """
        is_call = delta.tool_call is not None
        if delta.tool_call is not None and delta.tool_call.index in output.ended_calls:
            raise EngineError("The engine went back to a tool call that it had left.", status=502)
        released: list[Delta] = []
        for key in [key for key in output.streams if key == "echo" or (is_call and isinstance(key, int))]:
            released += await self._vet(output, output.streams[key], Delta(index=delta.index), is_final=True)
            if output.finished:
                break
            del output.streams[key]
            if isinstance(key, int):
                output.ended_calls.add(key)
        return released

    async def close(self) -> None:
        for output in self._outputs:
            output.finished = True
        await self._abort(self._outputs)

    async def _vet(
        self,
        output: _Output,
        stream: Stream,
        delta: Delta,
        asked: Asked | None = None,
        *,
        is_final: bool = False,
    ) -> list[Delta]:
        """Take a delta through a stream's hooks, `asked` being how far they have let it through already."""
        is_final = is_final or delta.finish_reason is not None
        is_clear = not (is_final or output.ledger.groups or stream.waiting)
        fragments, textless = fragments_of(delta.tokens, delta.text)
        if is_final and (textless or stream.waiting or not fragments):
            fragments.append(Fragment("", textless))  # nothing follows: what has no text goes with the end
            textless = None
        if is_final:
            spoil(f for f in fragments if f.group is not None and f.group.is_incomplete)
        is_clear = not stream.join_waiting(fragments) and is_clear and textless is None
        out, ends = fragments, None
        if fragments:
            out, ends = await stream.feed(
                fragments, is_final=is_final, asked=asked, num_decided=self._num_decided(output)
            )
        if output.delivery is not None:
            out = output.delivery.depart(stream, fragments, out, ends)
        if fragments and out is fragments and is_clear and ends is None:
            stream.announced = True
            output.has_call = output.has_call or delta.tool_call is not None
            return self._new(output, [stream.cleaned(delta)])
        output.ledger.enter(fragment.group for fragment in fragments)
        if textless is not None:
            output.ledger.enter([textless])
            stream.waiting.append(textless)
        released = [stream.delta(text, tokens, self._usage) for text, tokens in pieces_of(out, output.ledger)]
        if is_final and stream.tool_call and not stream.announced and not released and out:
            released = [stream.delta("", (), self._usage)]  # a call without arguments, let through
        if released:
            stream.announced = True
            output.has_call = output.has_call or stream.tool_call is not None
        released = self._new(output, released)
        if isinstance(ends, Rewind):
            await self._take_back(output, stream, ends)
        elif ends is not None:
            released += await self._terminate(output, ends)
        return released

    async def _finish(self, output: _Output, last: Stream, delta: Delta) -> list[Delta]:
        """The output came to its end: its other streams come to theirs, and it gets its finish reason."""
        released: list[Delta] = []
        for stream in list(output.streams.values()):
            if stream is not last:
                released += await self._vet(output, stream, Delta(index=output.index), is_final=True)
                if output.finished:
                    return released
        output.finished = True
        reason = delta.finish_reason
        if reason == "tool_calls" and not output.has_call:
            reason = "stop"  # every call was withheld: a client must not look for one
        return [*released, *self._new(output, [self._finish_delta(output, reason, self._told(delta))])]

    def _told(self, last: Delta) -> str | int | None:
        """The engine's stop reason, unless it stands for text: of a stop string, or of a token that is not
        given with the end as special ones are. No hook was shown that text (contract 2.7, 6.2)."""
        if all(hook.is_shadow for hook in self._hooks):
            return last.stop_reason
        ends_in = last.tokens[-1] if last.tokens else None
        is_special = ends_in is not None and not ends_in.text and ends_in.id == last.stop_reason
        return last.stop_reason if is_special else None

    async def _terminate(self, output: _Output, terminate: Terminate) -> list[Delta]:
        self._terminated = True
        ended = [output] if terminate.scope == "output" else [o for o in self._outputs if not o.finished]
        for one in ended:
            one.finished = True
        await self._abort(ended)
        for one in ended:
            if one.delivery is not None and not one.delivery.is_repeated:
                one.ledger.close()  # whether a client has these tokens already is not known
        return [self._finish_delta(one, self._options.finish_reason, terminate.reason) for one in ended]

    def _num_decided(self, output: _Output) -> int | None:
        """How many of the output's tokens are decided, on whatever channel. None: it cannot be taken back."""
        delivery = output.delivery
        if (
            delivery is None
            or delivery.boundary >= delivery.num_tokens
            or self._num_rewinds >= self._options.max_rewinds
            or self.request.is_searched
        ):
            return None
        return delivery.num_decided

    async def _take_back(self, output: _Output, stream: Stream, verdict: Rewind) -> None:
        """Have the engine go on otherwise from the last token that is wholly decided."""
        delivery, undecided = output.delivery, stream.undecided
        assert delivery is not None
        assert undecided is not None
        num_standing = max(delivery.boundary, undecided)  # what is held may have been given already
        self._num_rewinds += 1
        self.rewind = EngineRewind(output.index, num_standing, verdict.ban)
        output.finished = True
        await self._abort([output])
        delivery.begin_again(num_standing, verdict.reason)
        self._outputs[output.index] = _Output(output.index, delivery)

    def _new(self, output: _Output, released: list[Delta]) -> list[Delta]:
        """What of it the client does not have already. Raises `DiffersError`."""
        if output.delivery is None:
            return released
        return [new for delta in released if (new := output.delivery.new(delta)) is not None]

    def _finish_delta(self, output: _Output, reason: FinishReason | None, stop: str | int | None) -> Delta:
        return Delta(
            index=output.index,
            tokens=tuple(output.ledger.close()),
            finish_reason=reason,
            stop_reason=stop,
            usage=self._usage,
        )

    def _counted(self, released: list[Delta]) -> list[Delta]:
        """With the usage that the server was told to give."""
        if not self._counts_released:
            return released
        return [self._recounted(delta) for delta in released]

    def _recounted(self, released: Delta) -> Delta:
        if released.channel != "echo":
            self._num_released += len(released.tokens)
        if released.channel == "reasoning":
            self._num_reasoning += len(released.tokens)
        used = released.usage
        if used is None:
            return released
        num_reasoning = min(used.reasoning_tokens, self._num_reasoning)
        counted = replace(used, completion_tokens=self._num_released, reasoning_tokens=num_reasoning)
        return replace(released, usage=counted)

    @staticmethod
    async def _abort(outputs: list[_Output]) -> None:
        """Give every open stream its last call. Being cancelled meanwhile ends one call, not the others."""
        cancelled: asyncio.CancelledError | None = None
        for output in outputs:
            for stage in [stage for stream in output.streams.values() for stage in stream.stages]:
                try:
                    await stage.abort()
                except asyncio.CancelledError as error:
                    cancelled = error
            output.streams.clear()
        if cancelled is not None:
            raise cancelled
