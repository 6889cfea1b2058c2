"""A response, made from released deltas. Its stream is a series of events; the last one has the whole."""

import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Literal

import orjson

from engine.protocol import Delta, GenerationRequest
from proxy.wire.openai.answer import Event, EventsAnswer, JSONObject, event
from proxy.wire.openai.response_items import Call, Message, OutputItem, item_for
from proxy.wire.openai.response_tools import shown
from proxy.wire.openai.responses import ResponsesRequest

Keep = Callable[[JSONObject], Awaitable[bool]]
"""Stores a response object. Returns whether it is stored."""

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""The reason why a response is incomplete, by finish reason. With other finish reasons it is complete."""


class ResponsesAnswer(EventsAnswer):
    """A response.

    One item is open at a time, and text of another kind begins the next item, because clients expect the
    events of items to nest. Text that a hook released only after another item began is therefore an item of
    its own. As input, such items form one message again. A call is always one item: other text that comes
    before its end waits for its end.
    """

    fields: ResponsesRequest

    def __init__(
        self, fields: ResponsesRequest, request: GenerationRequest, keep: Keep | None = None
    ) -> None:
        """`keep` gets the whole response, before a client could know of it. None: it is not kept."""
        super().__init__(fields, request)
        self._keep = keep
        self._created_at = int(time.time())
        self._status: Literal["in_progress", "completed", "incomplete", "failed"] = "in_progress"
        self._error: JSONObject | None = None
        self._items: list[OutputItem] = []
        self._open: OutputItem | None = None
        """The last item, if it is not done yet."""
        self._waiting: list[Delta] = []
        """Text that came while a call was open."""
        self._source: tuple[str, int] | None = None
        """The source of the open item's text: a channel, and the index of a tool call."""
        self._numbers = count()

    async def settle(self) -> None:
        await super().settle()
        if self._keep is not None and not await self._keep(self.response()):
            self._keep = None

    def end(self) -> bytes:
        last: Event = (f"response.{self._status}", {"response": self.response()})
        return self._written([*self._last_events, last])

    def failure(self, error: JSONObject) -> bytes:
        """`response.failed`, then the `error` event of contract 4.2.

        The `error` event has the error twice: OpenAI documents its fields in the event itself, and OpenAI's
        servers and SDKs have them under `error`.
        """
        events = self._begin()
        fields = error["error"]
        self._status = "failed"
        self._error = {"code": "server_error", "message": fields["message"]}
        if self._open is not None:
            self._open.status = "incomplete"
        flat = {name: fields[name] for name in ("code", "message", "param")}
        failed: Event = ("response.failed", {"response": self.response()})
        return self._written([*events, failed, ("error", {**flat, **error})])

    def whole(self) -> bytes:
        return orjson.dumps(self.response())

    def response(self) -> JSONObject:
        """The response object as it is so far."""
        fields, reason = self.fields, self._finish.finish_reason
        response: JSONObject = {
            "id": self.request.request_id,
            "object": "response",
            "created_at": self._created_at,
            "status": self._status,
            "background": False,
            "error": self._error,
            "incomplete_details": {"reason": _INCOMPLETE[reason]} if reason in _INCOMPLETE else None,
            "instructions": fields.instructions,
            "max_output_tokens": fields.max_output_tokens,
            "model": self.request.model,
            "output": [item.json() for item in self._items],
            "parallel_tool_calls": fields.parallel_tool_calls,
            "previous_response_id": fields.previous_response_id,
            "reasoning": {"effort": fields.reasoning.effort, "summary": None},
            "store": self._keep is not None,
            "temperature": fields.temperature,
            "text": {"format": {"type": "text"}, **fields.text.model_dump(exclude_none=True)},
            "tool_choice": fields.tool_choice,
            "tools": shown(fields.tools),
            "top_logprobs": fields.top_logprobs,
            "top_p": fields.top_p,
            "truncation": "disabled",  # also if the caller asked for `auto`
            "usage": None if self._status == "in_progress" else self._usage_object(),
            "user": fields.user,
            "metadata": fields.metadata,
        }
        if self._finish.stop_reason is not None:
            response["stop_reason"] = self._finish.stop_reason
        return response

    def _add(self, delta: Delta) -> list[Event]:
        if delta.tool_call is None and isinstance(self._open, Call):
            self._waiting.append(delta)
            return []
        has_logprobs = delta.channel == "content" and self.request.sampling.logprobs is not None
        logprobs = self.token_logprobs(delta) if has_logprobs else []
        events = self._turn_to(delta) if delta.text or delta.tool_call is not None else []
        if self._open is not None and (delta.text or (logprobs and isinstance(self._open, Message))):
            events += self._open.add(delta.text, logprobs)
        return events

    def _first_events(self) -> list[Event]:
        response = self.response()
        return [(f"response.{status}", {"response": response}) for status in ("created", "in_progress")]

    def _turn_to(self, delta: Delta) -> list[Event]:
        """Open the item that `delta`'s text belongs to."""
        source = (delta.channel, delta.tool_call.index if delta.tool_call else 0)
        if self._open is not None and source == self._source:
            return []
        events = self._close("completed")
        self._open, self._source = item_for(delta, len(self._items), self.fields.toolbox), source
        if delta.tool_call is not None and isinstance(self._open, Call):
            self._open.call_id = f"call_{self.call_key(0, delta.tool_call.index)}"
        self._items.append(self._open)
        return events + self._open.begin()

    def _close(self, status: Literal["completed", "incomplete"]) -> list[Event]:
        """End the open item, and add the text that waited for its end."""
        item, self._open = self._open, None
        events = [] if item is None else item.end(status)
        waiting, self._waiting = self._waiting, []
        for delta in waiting:
            events += self._add(delta)
        return events if self._open is None else events + self._close(status)

    def _complete(self) -> list[Event]:
        """End the answer. An answer without any item gets an empty message."""
        events = self._begin()
        if not self._items and self.request.generates:
            events += self._turn_to(Delta())
        self._status = "incomplete" if self._finish.finish_reason in _INCOMPLETE else "completed"
        return events + self._close("incomplete" if self._finish.is_blocked else self._status)

    def _usage_object(self) -> JSONObject:
        used = self._usage
        return {
            "input_tokens": used.prompt_tokens,
            "input_tokens_details": {
                "cached_tokens": used.cached_tokens,
                "cache_write_tokens": used.cache_written_tokens,
            },
            "output_tokens": used.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
            "total_tokens": used.prompt_tokens + used.completion_tokens,
        }

    def _written(self, events: list[Event]) -> bytes:
        written = []
        for kind, fields in events:
            numbered = {"type": kind, "sequence_number": next(self._numbers), **fields}
            written.append(event(orjson.dumps(numbered), kind))
        return b"".join(written)
