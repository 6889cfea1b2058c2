"""One output (choice) of a guarded request: its streams by channel and tool call, and its tokens' order."""

from dataclasses import replace

from engine.protocol import Delta, EngineError, FinishReason, PromptScores, Rewind, Token
from engine.protocol.deltas import with_own_reason
from hooks.api import Chunk, rewind, terminate
from hooks.pipeline.ask import Asking, HookReply
from hooks.pipeline.channel_order import Waiting, let_leave
from hooks.pipeline.delivery import Delivery, LastRewind
from hooks.pipeline.fragments import Fragment, are_bytes_of, fragments_of, spoil
from hooks.pipeline.guarded_request import GuardedRequest
from hooks.pipeline.piece import Piece
from hooks.pipeline.release import Ledger, leave_by_token, leave_together
from hooks.pipeline.stream import Stream, weight

Vetted = tuple[list[Delta], terminate | Rewind | None]
"""The released deltas; and a verdict that ends the output, or the order to the engine to rewind it."""


class Output:
    """Shows the output's deltas to the hooks of its streams."""

    __slots__ = (
        "_ended_calls",
        "_gives_bytes",
        "_guarded",
        "_has_call",
        "_has_content",
        "_has_offsets",
        "_has_unasked_call",
        "_has_withheld_call",
        "_prompt_scores",
        "_running",
        "_waiting",
        "_waiting_call",
        "delivery",
        "index",
        "is_finished",
        "ledger",
        "streams",
    )

    def __init__(self, guarded: GuardedRequest, index: int, delivery: Delivery | None = None) -> None:
        """`delivery`: the part of the output that the client has; None: the output is never rewound."""
        self._guarded = guarded
        self.index = index
        self.delivery = delivery
        self.streams: dict[str | int, Stream] = {}
        """The open streams, by channel; a tool call's stream by the call's index."""
        self._ended_calls: set[int] = set()
        """Indices of the tool calls that have ended."""
        self._running: Stream | None = None
        """The stream of the last text."""
        self._waiting: Waiting | None = None
        """Set while other channels wait for the held text of one."""
        self._waiting_call: Stream | None = None
        """The tool call that waits for its end."""
        self._has_content = False
        """Whether the engine gave content."""
        self._has_call = False
        """Whether a tool call, or a part of one, has left."""
        self._has_unasked_call = False
        """Whether a tool call has left that no person decides on."""
        self._has_withheld_call = False
        """Whether a tool call ended that is withheld."""
        sampling = guarded.request.sampling
        has_logprobs = sampling.logprobs is not None or sampling.prompt_logprobs is not None
        self._gives_bytes = has_logprobs and guarded.is_enforced
        """Whether the client gets the tokens' bytes, and a hook decides which ones (contract 8.4)."""
        self._prompt_scores: PromptScores | None = None
        self._has_offsets = sampling.logprobs is not None
        self.ledger = Ledger(self._gives_bytes)
        self.is_finished = False

    def feed(self, delta: Delta) -> Asking[Vetted]:
        """Vet one delta. Raises `HookError`, `DiffersError`, and `EngineError` for more of a tool call that
        has ended."""
        if delta.finish_reason == "content_filter" and self.delivery and self.delivery.last_rewind:
            return self._end_without_rewind(delta, self.delivery.last_rewind)
        call = delta.tool_call
        stream = self.streams.get(delta.channel if call is None else call.index)
        if (stream is self._running or not delta.text) and stream is not None and delta.finish_reason is None:
            return self._vet(stream, delta)
        return self._begin_or_end(delta)

    def _ends_call(self, delta: Delta) -> bool:
        """Whether the delta's text comes after a whole call that waits. Then the call leaves first."""
        call, is_text = self._waiting_call, delta.channel in ("content", "reasoning") and delta.text != ""
        return call is not None and is_text and call.has_whole_arguments

    def _end_without_rewind(self, last: Delta, why: LastRewind) -> Asking[Vetted]:
        """The engine cannot continue differently: the rewind acts as terminate (contract 8.3)."""
        stream = self.streams.get(why.stream) or self.streams.get(_key_of(last))
        if stream is None:
            stream = self.streams[_key_of(last)] = Stream(self._guarded, last, self._prompt_scores)
        stage = stream.stages[why.place]
        chunk = Chunk(stage.context, "", (), True, False, stage.held.texts)
        return self._vet(stream, last, HookReply(why.place, chunk, why.instead))

    def _begin_or_end(self, delta: Delta) -> Asking[Vetted]:
        """Vet the first delta of a stream, or the last of the output."""
        key = _key_of(delta)
        released: list[Delta] = []
        before, goes_on = self._running, delta.text or delta.tool_call is not None
        if before is not None and before is not self.streams.get(key) and goes_on and self.delivery is None:
            released, ends = yield from self._end_channel(before)
            if ends is not None:
                return released, ends
        if (key not in self.streams and (self.streams or self._ended_calls)) or self._ends_call(delta):
            ended, ends = yield from self._end_earlier(delta)
            released += ended
            if ends is not None:
                return released, ends
        if key not in self.streams:
            self._prompt_scores = delta.prompt_scores or self._prompt_scores
            self.streams[key] = Stream(self._guarded, delta, self._prompt_scores)
        stream = self.streams[key]
        if delta.text or delta.tool_call is not None:
            self._running = stream
            self._has_content = self._has_content or stream.channel == "content"
        if stream.kept is not None:
            self._waiting_call = stream
        if delta.finish_reason is None:
            vetted, ends = yield from self._vet(stream, delta)
            return [*released, *vetted], ends
        if self._guarded.is_cut(delta):
            for open_stream in self.streams.values():
                open_stream.cut()
        vetted, ends = yield from self._finish(stream, delta)
        return [*released, *vetted], ends

    def _end_channel(self, stream: Stream) -> Asking[Vetted]:
        """Let the held text of the channel that the engine leaves now leave first (contract 2.16)."""
        if stream.channel not in ("content", "reasoning") or stream.key not in self.streams:
            return [], None
        left, ends = yield from let_leave(self._guarded, stream, self.ledger)
        assert not isinstance(ends, rewind)  # without a delivery, it acts as terminate
        released = self._in_order(stream, self.deliver(stream, left), is_over=ends is not None)
        self._waiting = self._waiting or Waiting.begin(stream)
        return released, ends

    def _in_order(self, stream: Stream, released: list[Delta], *, is_over: bool = False) -> list[Delta]:
        """The deltas that leave now: waiting ones, and those of `stream`. `is_over`: no hook holds text."""
        if (waiting := self._waiting) is None:
            return released
        if not (waiting.add(stream, released) or is_over):
            return []
        self._waiting = None
        return waiting.deltas

    def _end_earlier(self, delta: Delta) -> Asking[Vetted]:
        """End the streams that another stream's delta ends: the prompt's echo, an earlier tool call."""
        call = delta.tool_call
        if call is not None and call.index in self._ended_calls:
            raise EngineError("The engine went back to a tool call that it had left.", status=502)
        released: list[Delta] = []
        ends_calls = call is not None or self._ends_call(delta)
        for key in [key for key in self.streams if key == "echo" or (ends_calls and isinstance(key, int))]:
            vetted, ends = yield from self._vet(self.streams[key], Delta(index=self.index), is_final=True)
            released += vetted
            if ends is not None:
                return released, ends
            ended = self.streams.pop(key)
            if isinstance(key, int):
                released += self._let_leave(ended)
                self._ended_calls.add(key)
        return released, None

    def _vet(
        self, stream: Stream, delta: Delta, answered: HookReply | None = None, *, is_final: bool = False
    ) -> Asking[Vetted]:
        """Show a delta to one stream's hooks. `is_final`: the stream ends with it. `answered`: as in
        `Stream.feed`; the delta has no text then."""
        is_final = is_final or delta.finish_reason is not None
        text, tokens = delta.text, delta.tokens
        if answered is not None:
            piece = Piece.of([Fragment("")], self.ledger)
        elif (
            not (is_final or stream.waiting or self.ledger.groups)
            and self.delivery is None
            and text
            and not (tokens and tokens[-1].text == "")  # such a token waits for the text that follows
            and not (self._gives_bytes and not are_bytes_of(tokens, text))
        ):
            piece = Piece(text, tokens, self.ledger)  # it may pass as it is
        else:
            piece = self._cut(stream, text, tokens, is_final)
        fed = [] if self.delivery is None else piece.fragments
        ends: terminate | rewind | None = None
        if piece.left != []:
            num_decided = None if self.delivery is None else self._num_decided(self.delivery)
            ends = yield from stream.feed(
                piece, is_final=is_final, answered=answered, num_decided=num_decided
            )
        if piece.left is None and stream.kept is None and not self.ledger.groups:
            if delta.tool_call is not None:
                stream.is_announced = self._has_call = True
                delta = replace(delta, tool_call=stream.tool_call)
            if delta.prompt_token_ids is not None or delta.prompt_scores is not None:
                delta = replace(delta, prompt_token_ids=None, prompt_scores=None)  # unseen (5.3)
            released = [delta]
        else:
            out = piece.fragments
            if self.delivery is not None:
                out = self.delivery.depart(stream, fed, out, ends)
            released = self.deliver(stream, out)
        if is_final and stream.tool_call is not None and ends is None:
            released += self._end_call(stream, piece.fragments)
        if isinstance(ends, terminate) and ends.text and stream.channel != "content":
            closing, ends = yield from self._close(ends, stream.ended_by)
            released += closing
        if self.delivery is not None:
            released = self.new(released)
        elif self._waiting is not None:
            released = self._in_order(stream, released, is_over=ends is not None)
        return released, self._order_rewind(stream, ends) if isinstance(ends, rewind) else ends

    def _end_call(self, call: Stream, last: list[Fragment]) -> list[Delta]:
        """The call has ended: the hooks have passed it, or withhold all or a part of it (contract 3.20).
        `last`: the fragments that they released last. Returns a call without arguments that leaves now."""
        released: list[Delta] = []
        kept = call.kept
        if kept is None and last and call.is_empty_call:
            released = [self._announced(call, "", ())]
        elif kept and (call.is_suppressed or not (call.is_empty_call or any(one.text for one in kept))):
            spoil(kept)
            kept.clear()
        if not (kept or call.is_announced):
            self._has_withheld_call = True
        return released

    def _let_leave(self, call: Stream) -> list[Delta]:
        """The delta of a call that waited for its end, if it was not withheld."""
        self._waiting_call = None
        kept, call.kept = call.kept, []
        if not kept:
            return []
        asked = next((stage for stage in call.stages if stage.asked is not None), None)
        released = [self._announced(call, *leave_together(kept, self.ledger))]
        if self.delivery is not None:
            released = self.new(released)
        if asked is None:
            self._has_unasked_call = True
            return self._in_order(call, released)
        so_far = not self._has_content, not self._has_unasked_call
        self._guarded.questions += [asked.question(one, *so_far) for one in released]
        return []  # it leaves later, if at all

    def _announced(self, call: Stream, text: str, tokens: tuple[Token, ...]) -> Delta:
        call.is_announced = self._has_call = True
        return call.delta(text, tokens, self._guarded.usage)

    def _close(self, verdict: terminate, place: int) -> Asking[tuple[list[Delta], terminate]]:
        """Deliver the closing text of a verdict on another channel. It is content, and the last text of it
        that the hooks after `place` see (contract 3.3). Also returns the verdict that is obeyed."""
        content = self.streams.get("content")
        if content is None:
            content = self.streams["content"] = Stream(self._guarded, Delta(index=self.index))
        out: list[Fragment] = []
        for before, stage in enumerate(content.stages[: place + 1]):
            if stage.num_fused and not stage.is_closed:  # its guards are shown what it holds for them
                held = Piece.of((yield from stage.give_up()), self.ledger)
                yield from content.feed(held, is_final=False, begin=before + 1)
                out += held.fragments
        closing = Piece.of([Fragment(verdict.text or "")], self.ledger)
        ends = yield from content.feed(closing, is_final=True, begin=place + 1)
        out += closing.fragments
        if self.delivery is not None:
            out = self.delivery.depart(content, [], out, verdict)
        if isinstance(ends, terminate) and weight(ends) > weight(verdict):
            verdict = ends
        return self.deliver(content, out), verdict

    def _cut(self, stream: Stream, text: str, tokens: tuple[Token, ...], is_final: bool) -> Piece:
        """Make a piece of a text: fragments with their tokens. Textless tokens wait for text."""
        fragments, textless = fragments_of(tokens, text)
        if is_final and (textless or stream.waiting or not fragments):
            fragments.append(Fragment("", textless))  # no text follows: textless tokens go with the end
            textless = None
        if is_final:
            for fragment in fragments:
                if fragment.group is not None and fragment.group.is_incomplete:
                    fragment.group.spoiled = True
        if stream.waiting:
            stream.join_waiting(fragments)
        self.ledger.enter(fragments)
        if textless is not None:
            self.ledger.groups.append(textless)
            stream.waiting.append(textless)
        return Piece.of(fragments, self.ledger)

    def deliver(self, stream: Stream, released: list[Fragment]) -> list[Delta]:
        """Deltas of fragments that every hook released, with all tokens that may leave."""
        if stream.kept is not None:
            stream.kept += released
            return []
        usage = self._guarded.usage
        if self._has_offsets:
            texts = leave_by_token(released, self.ledger)
            deltas = [stream.delta(text, tokens, usage) for text, tokens in texts if text or tokens]
        else:
            text, tokens = leave_together(released, self.ledger)
            deltas = [stream.delta(text, tokens, usage)] if text or tokens else []
        if deltas and stream.tool_call is not None:
            stream.is_announced = self._has_call = True
        return deltas

    def _num_decided(self, delivery: Delivery) -> int | None:
        """The number of tokens that are decided, on every channel. None: the output cannot be rewound."""
        if delivery.boundary >= delivery.num_tokens or not self._guarded.can_rewind:
            return None
        return delivery.num_decided

    def _order_rewind(self, stream: Stream, verdict: rewind) -> Rewind:
        """Have the engine continue differently from the last token that is wholly decided (contract 8.3)."""
        delivery, undecided = self.delivery, stream.first_undecided
        assert delivery is not None
        assert undecided is not None
        num_kept = max(delivery.boundary, undecided)  # held text may have been delivered before
        instead = replace(verdict.as_terminate, after=None)  # the rewind has released that part
        delivery.begin_again(num_kept, LastRewind(instead, stream.key, stream.ended_by))
        return Rewind(self.index, num_kept, None if verdict.ban is None else tuple(verdict.ban))

    def _finish(self, last: Stream, delta: Delta) -> Asking[Vetted]:
        """The output ends: its streams end, and it gets its finish reason. `last`: the stream of the delta.

        Content ends last: in it a hook may tell the client that a call is withheld (contract 2.14), and the
        closing text of other channels is its end. A call that waited leaves when no hook can end the output
        any more.
        """
        released: list[Delta] = []
        if "content" in self.streams:
            self.streams["content"] = self.streams.pop("content")  # it ends last
        for stream in list(self.streams.values()):
            if stream is last:
                vetted, ends = yield from self._vet(last, delta)
            else:
                vetted, ends = yield from self._vet(stream, Delta(index=self.index), is_final=True)
            released += vetted
            if ends is not None:
                return released, ends
        if self._has_withheld_call and "content" not in self.streams:
            empty = Delta(index=self.index)
            content = self.streams["content"] = Stream(self._guarded, empty, self._prompt_scores)
            vetted, ends = yield from self._vet(content, empty, is_final=True)
            released += vetted
            if ends is not None:
                return released, ends
        released += [one for call in self.streams.values() if call.kept for one in self._let_leave(call)]
        self.is_finished = True
        self.streams.clear()  # each hook had its last call
        ended = with_own_reason(delta, has_call=self._has_call)
        end = self._finish_delta(ended if ended.stop_reason is None else self._guarded.for_client(ended))
        return [*released, *([end] if self.delivery is None else self.new([end]))], None

    def refuse(self, text: str) -> Asking[list[Delta]]:
        """Answer with a refusal's text. The hooks see it as a whole stream."""
        first = Delta(index=self.index)
        stream = self.streams[first.channel] = Stream(self._guarded, first)
        piece = Piece.of([Fragment(text)], self.ledger)
        yield from stream.feed(piece, is_final=True)
        self.is_finished = True
        return self.deliver(stream, piece.fragments)

    def abort(self) -> Asking[None]:
        """Give every open stream its last call, aborted (contract 2.6)."""
        for stream in list(self.streams.values()):
            for stage in stream.stages:
                yield from stage.abort()
        self.streams.clear()
        self._waiting_call = None

    def end(self, reason: FinishReason, stop_reason: str | None) -> list[Delta]:
        """The last deltas of an output that a hook ended: what waited, and the end."""
        if self.delivery is not None and not self.delivery.is_repeated:
            self.ledger.close()  # the client may have these tokens already, so they are not given here
        end = Delta(finish_reason=reason, stop_reason=stop_reason, is_blocked=True)
        return [*(self._waiting.deltas if self._waiting else ()), self._finish_delta(end)]

    def new(self, released: list[Delta]) -> list[Delta]:
        """The part that the client does not have already. Raises `DiffersError`."""
        assert self.delivery is not None
        return [new for delta in released if (new := self.delivery.new(delta)) is not None]

    def _finish_delta(self, last: Delta) -> Delta:
        """The output's last delta for the client, with the reasons of `last`."""
        return Delta(
            index=self.index,
            tokens=self.ledger.close(),
            finish_reason=last.finish_reason,
            stop_reason=last.stop_reason,
            usage=self._guarded.usage,
            is_cut=last.is_cut,
            is_blocked=last.is_blocked,
        )


def _key_of(delta: Delta) -> str | int:
    return delta.channel if delta.tool_call is None else delta.tool_call.index
