"""An answer of the Messages API, made from released deltas: events for a stream, or one message."""

import orjson

from engine.protocol import Delta, EngineError, GenerationRequest
from engine.protocol.call_arguments import is_whole_object
from proxy.wire.messages.blocks import Block, Text, Thinking, ToolUse
from proxy.wire.messages.errors import error_body
from proxy.wire.messages.fields import MessagesRequest
from proxy.wire.openai.answer import Event, EventsAnswer, JSONObject, event

_BYTES_PER_TOKEN = 4
"""For a prompt that the engine has not counted yet."""


class MessagesAnswer(EventsAnswer):
    """A message.

    One block is open at a time. Text of another kind begins the next block.

    A call of a tool opens its block only when its whole input is there: clients read the beginning of an
    input as if it were whole, and run it. A call whose input never becomes whole is left out, and the stop
    reason says why.
    """

    fields: MessagesRequest
    done = b""
    keep_alive = event(b'{"type":"ping"}', "ping")

    def __init__(self, fields: MessagesRequest, request: GenerationRequest) -> None:
        super().__init__(fields, request)
        self.headers = {"request-id": request.request_id}
        self._blocks: list[Block] = []
        self._open: Block | None = None
        """The last block, if it is not complete."""
        self._calls: dict[int, tuple[str, list[str]]] = {}
        """Calls that have no block yet: their name and their input so far, by the engine's index."""

    def end(self) -> bytes:
        reasons = {name: value for name, value in self._reasons().items() if value or name != "stop_details"}
        delta: Event = ("message_delta", {"delta": reasons, "usage": self._usage_object()})
        return self._written([*self._last_events, delta, ("message_stop", {})])

    def failure(self, error: JSONObject) -> bytes:
        """The error ends the stream. Nothing follows it."""
        return self._written([("error", error_body(error["error"], self.request.request_id))])

    def whole(self) -> bytes:
        return orjson.dumps(self._message() | self._reasons())

    def _add(self, delta: Delta) -> list[Event]:
        if delta.tool_call is not None:
            _, pieces = self._calls.setdefault(delta.tool_call.index, (delta.tool_call.name, []))
            pieces.append(delta.text)
            return []
        if not delta.text:
            return []
        events = self._turn_to(Thinking if delta.channel == "reasoning" else Text)
        assert self._open is not None
        return events + self._open.add(delta.text)

    def _first_events(self) -> list[Event]:
        return [("message_start", {"message": self._message()})]

    def _turn_to(self, kind: type[Text | Thinking]) -> list[Event]:
        """Open a block of this kind."""
        if type(self._open) is kind:
            return []
        return [*self._close(), *self._opened(kind(len(self._blocks)))]

    def _opened(self, block: Block) -> list[Event]:
        self._open = block
        self._blocks.append(block)
        return block.begin()

    def _close(self) -> list[Event]:
        block, self._open = self._open, None
        return [] if block is None else block.end()

    def _complete(self) -> list[Event]:
        """End the blocks, the calls among them."""
        events = [*self._begin(), *self._close()]
        for call_index, (name, pieces) in self._calls.items():
            call_input = "".join(pieces)
            if self._is_whole(call_input):
                events += self._opened(ToolUse(len(self._blocks), name, self.call_key(0, call_index)))
                events += [*self._blocks[-1].add(call_input), *self._close()]
        return events

    def _is_whole(self, call_input: str) -> bool:
        """Whether the input of a call is complete. Raises `EngineError` if the model ended it, and it is not
        an object."""
        is_ended = self._finish.finish_reason == "tool_calls"
        if not call_input.strip():
            return is_ended
        is_object = is_whole_object(call_input)
        if is_ended and not is_object:
            raise EngineError("The model called a tool with an input that is not a JSON object.")
        return is_object

    @property
    def _is_guarded(self) -> bool:
        """Whether a guard ended the answer."""
        return self._finish.finish_reason == "content_filter" or self._finish.is_blocked

    def _reasons(self) -> JSONObject:
        """The fields that say why the answer ended."""
        finish = self._finish
        reasons: JSONObject = {"stop_reason": "end_turn", "stop_sequence": None, "stop_details": None}
        if self._is_guarded:
            # `stop` is of the setting `terminate_finish_reason`.
            reasons["stop_reason"] = "end_turn" if finish.finish_reason == "stop" else "refusal"
            details = {"type": "refusal", "category": None, "explanation": finish.stop_reason}
            reasons["stop_details"] = details
        elif finish.finish_reason == "length":
            reasons["stop_reason"] = "max_tokens"
        elif any(isinstance(block, ToolUse) for block in self._blocks):
            reasons["stop_reason"] = "tool_use"
        elif isinstance(finish.stop_reason, str):
            reasons |= {"stop_reason": "stop_sequence", "stop_sequence": finish.stop_reason}
        return reasons

    def _message(self) -> JSONObject:
        return {
            "id": self.request.request_id,
            "type": "message",
            "role": "assistant",
            "model": self.request.model,
            "content": [block.whole() for block in self._blocks],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage_object(),
        }

    def _usage_object(self) -> JSONObject:
        used = self._usage
        # After a prompt that a hook answered, no tokens are counted (contract 8.8).
        is_unasked = self._finish.finish_reason is not None and not used.completion_tokens
        num_prompt = used.prompt_tokens or (0 if is_unasked else self._guess())
        written, hour = used.cache_written_tokens, used.cache_written_1h_tokens
        by_age = {"ephemeral_5m_input_tokens": written - hour, "ephemeral_1h_input_tokens": hour}
        return {
            "input_tokens": max(0, num_prompt - used.cached_tokens - written),
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": used.cached_tokens,
            **({"cache_creation": by_age} if written else {}),
            "output_tokens": used.completion_tokens,
        }

    def _guess(self) -> int:
        """An estimate of the prompt's tokens, before the engine reports them. Some clients compact their
        history by this number."""
        prompt = orjson.dumps([*self.request.messages, *self.request.tools], default=dict)
        return -(-len(prompt) // _BYTES_PER_TOKEN)
