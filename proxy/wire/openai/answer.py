"""The common parts of every endpoint's answer. A whole answer is its chunks, folded into one."""

import os
import time
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import orjson

from engine.protocol import Channel, Delta, GenerationRequest, Token, TopLogprob, Usage
from engine.protocol.call_ids import call_key
from engine.protocol.deltas import with_own_reason
from proxy.wire.openai.fields import GenerationFields
from proxy.wire.openai.prompt_logprobs import prompt_logprobs

JSONObject = dict[str, Any]
Event = tuple[str, JSONObject]
"""A named event: its type, and its other fields."""

DONE = b"data: [DONE]\n\n"
"""The event that ends a stream."""
COMMENT = b": keep-alive\n\n"

PROMPT_FIELDS = frozenset({"prompt_token_ids", "prompt_logprobs"})
"""The fields of a choice that describe its prompt."""
_MARK = "text"
"""Stands for a delta's text where an event is split in two. The rest of an event never contains it."""


class Answer(ABC):
    """An answer made from released deltas: events for a stream (`chunk`, then `end` or `failure`), or one
    whole (`fold`, then `whole`)."""

    done: ClassVar[bytes] = DONE
    """Comes after the last event of a stream, also of one that failed."""
    keep_alive: ClassVar[bytes] = COMMENT
    """Says that the answer goes on, in a silence."""

    def __init__(self, fields: GenerationFields, request: GenerationRequest) -> None:
        self.fields = fields
        self.request = request
        self.headers: dict[str, str] = {}
        """The headers that the response has in this API alone."""
        self._usage = Usage(0, 0)
        self._called: set[int] = set()
        """The outputs that have a tool call."""

    @abstractmethod
    def chunk(self, delta: Delta) -> bytes:
        """The events for `delta`; may be empty."""

    async def settle(self) -> None:  # noqa: B027 - most answers have nothing to settle
        """Comes after the last delta, and before `end` or `whole`."""

    @abstractmethod
    def end(self) -> bytes:
        """The events that end a stream; may be empty."""

    def failure(self, error: JSONObject) -> bytes:
        """The events that end a failed stream. `error` is an error object (contract 4.2)."""
        return event(orjson.dumps(error), "error")

    @abstractmethod
    def fold(self, delta: Delta) -> None:
        """Add `delta` to the whole answer."""

    @abstractmethod
    def whole(self) -> bytes:
        """The whole answer, as JSON."""

    def call_key(self, output_index: int, call_index: int) -> str:
        """The part after the prefix of the id of a tool call. `call_index`: the engine's."""
        return call_key(self.request.request_id, output_index, call_index)

    def token_name(self, token: Token | TopLogprob) -> str:
        """The token's text. Its id if the caller wants ids, or if nobody may know the text (contract 8.4)."""
        if token.id is not None and (self.fields.return_tokens_as_token_ids or not token.raw):
            return f"token_id:{token.id}"
        return token.raw.decode("utf-8", "replace")

    def token_logprobs(self, delta: Delta) -> list[JSONObject]:
        """The tokens that have a logprob, each with it and its top alternatives."""
        num_top = self.request.sampling.num_top_logprobs
        return [
            {**self._named(token), "top_logprobs": [self._named(top) for top in token.top[:num_top]]}
            for token in delta.tokens
            if token.logprob is not None
        ]

    def _named(self, token: Token | TopLogprob) -> JSONObject:
        return {"token": self.token_name(token), "logprob": token.logprob, "bytes": list(token.raw)}

    def _taken(self, delta: Delta) -> Delta:
        """The delta as the caller gets it. Its usage is counted."""
        if delta.usage is not None:
            self._usage = delta.usage
        if delta.tool_call is not None:
            self._called.add(delta.index)
        if delta.finish_reason is not None:
            delta = with_own_reason(delta, has_call=delta.index in self._called)
        if delta.channel == "reasoning" and not self.fields.shows_reasoning:
            return replace(delta, channel="content", text="", tokens=())
        return delta


class ChoicesAnswer(Answer):
    """An answer with `choices`, one for each output: the answer to a chat or a completion."""

    object: ClassVar[str]
    """The API's name for this kind of answer."""
    chunk_object: ClassVar[str]
    """The API's name for its chunks."""

    def __init__(self, fields: GenerationFields, request: GenerationRequest, *, gives_ids: bool) -> None:
        """`gives_ids`: whether the answer has token ids."""
        super().__init__(fields, request)
        self.gives_ids = gives_ids
        options = fields.stream_options
        self._include_usage = options is not None and options.include_usage
        self._continuous_usage = options is not None and options.continuous_usage_stats
        # A request may ask for thousands of outputs, and be refused. A stream needs none of these.
        self._choices: dict[int, JSONObject] = {}
        # Most deltas only add to a choice's text: the pieces of it, by output and channel.
        self._pieces: dict[tuple[int, str], list[str]] = {}
        self._num_prompt_logprobs = request.sampling.prompt_logprobs
        # All chunks begin with the same bytes, up to their choices. These are formatted once.
        self._identity: JSONObject = {
            "id": request.request_id,
            "object": self.chunk_object if request.stream else self.object,
            "created": int(time.time()),
            "model": request.model,
        }
        self._head = orjson.dumps(self._identity)[:-1] + b',"choices":'
        # Most chunks differ only in their text: the bytes before and after it, by output and channel.
        self._around: dict[tuple[int, str], tuple[bytes, bytes]] = {}
        self._empty_first = range(0)
        """The outputs that have an empty chunk before all others."""
        self._gives_text_alone = not (
            self._continuous_usage or self.gives_ids or request.sampling.logprobs is not None
        )

    @abstractmethod
    def begin_choice(self, delta: Delta) -> JSONObject:
        """The index, the content and the logprobs of the choice in the chunk that `delta` becomes."""

    @abstractmethod
    def empty_content(self) -> JSONObject:
        """The content of a whole answer's choice before any text is released."""

    @abstractmethod
    def pieces_of(self, whole: JSONObject, channel: Channel) -> list[str]:
        """The pieces of a channel's text in a whole answer's choice. Further text is added to them."""

    @abstractmethod
    def fold_choice(self, whole: JSONObject, part: JSONObject) -> None:
        """Add the content and logprobs of a chunk's choice to a whole answer's."""

    @abstractmethod
    def finish_choice(self, whole: JSONObject) -> JSONObject:
        """The whole answer's choice, as it is sent."""

    def chunk(self, delta: Delta) -> bytes:
        around = self._around.get((delta.index, delta.channel))
        if around is not None and delta.text and not (delta.tool_call or delta.finish_reason):
            self._usage = delta.usage or self._usage
            return around[0] + orjson.dumps(delta.text) + around[1]
        before = b""
        if self._empty_first:
            before = b"".join([self._event(Delta(index=i)) for i in self._empty_first])
            self._empty_first = range(0)
        shown = self._taken(delta)
        if shown is not delta and shown.finish_reason is None and shown.prompt_token_ids is None:
            return before  # nothing of it is shown
        events = before + self._event(shown)  # a first chunk also has a role
        if self._gives_text_alone and shown.text and not shown.tool_call and not shown.finish_reason:
            like_it = Delta(index=shown.index, channel=shown.channel, text=_MARK)
            head, _, tail = self._event(like_it).rpartition(orjson.dumps(_MARK))
            self._around[shown.index, shown.channel] = head, tail
        return events

    def beside_choices(self, choices: list[JSONObject]) -> JSONObject:
        """Fields to take out of the choices, because they are beside `choices`."""
        return {}

    def _event(self, delta: Delta) -> bytes:
        choice = self.chunk_choice(delta)
        beside = self.beside_choices([choice]) if PROMPT_FIELDS & choice.keys() else None
        body = self._head + orjson.dumps([choice])
        if beside:
            body += b"," + orjson.dumps(beside)[1:-1]
        if self._continuous_usage:
            body += b',"usage":' + orjson.dumps(self.usage())
        elif self._include_usage:
            body += b',"usage":null'
        return event(body + b"}")

    def end(self) -> bytes:
        """The usage, if the caller asked for it."""
        if not self._include_usage:
            return b""
        return event(self._head + b'[],"usage":' + orjson.dumps(self.usage()) + b"}")

    def fold(self, delta: Delta) -> None:
        pieces = self._pieces.get((delta.index, delta.channel))
        if pieces is not None and delta.text and not (delta.tool_call or delta.finish_reason):
            self._usage = delta.usage or self._usage
            pieces.append(delta.text)
            return
        delta = self._taken(delta)
        whole = self._whole_choice(delta.index)
        if delta.channel == "echo" and self._num_prompt_logprobs is not None:
            entries = prompt_logprobs(delta.tokens, self._num_prompt_logprobs)
            whole["prompt_logprobs"] = (whole["prompt_logprobs"] or []) + entries
        if delta.channel == "echo" and not self.request.echo:
            delta = replace(delta, text="", tokens=())  # the prompt came for its logprobs alone
        part = self.chunk_choice(delta)
        self.fold_choice(whole, part)
        if self._gives_text_alone and delta.text and not (delta.tool_call or delta.channel == "echo"):
            self._pieces[delta.index, delta.channel] = self.pieces_of(whole, delta.channel)
        for field in ("finish_reason", "stop_reason", "prompt_token_ids"):
            if part.get(field) is not None:
                whole[field] = part[field]
        if "token_ids" in part:
            whole.setdefault("token_ids", []).extend(part["token_ids"])

    def chunk_choice(self, delta: Delta) -> JSONObject:
        """The choice in the chunk that `delta` becomes."""
        choice = self.begin_choice(delta)
        choice["finish_reason"] = delta.finish_reason
        if delta.stop_reason is not None:
            choice["stop_reason"] = delta.stop_reason
        if self.gives_ids:
            released = delta.tokens if delta.channel != "echo" else ()
            choice["token_ids"] = [token.id for token in released if token.id is not None]
            if delta.prompt_token_ids is not None:
                choice["prompt_token_ids"] = delta.prompt_token_ids
        return choice

    def whole(self) -> bytes:
        num = self.request.num_outputs
        choices = [self.finish_choice(self._whole_choice(i)) for i in range(num)]
        beside = self.beside_choices(choices)
        return orjson.dumps({**self._identity, "choices": choices, "usage": self.usage(), **beside})

    def _whole_choice(self, index: int) -> JSONObject:
        if index not in self._choices:
            nothing = {"logprobs": None, "finish_reason": None, "stop_reason": None}
            if self._num_prompt_logprobs is not None:
                nothing["prompt_logprobs"] = None
            self._choices[index] = {"index": index, **self.empty_content(), **nothing}
        return self._choices[index]

    def usage(self) -> JSONObject:
        used = self._usage
        return {
            "prompt_tokens": used.prompt_tokens,
            "completion_tokens": used.completion_tokens,
            "total_tokens": used.prompt_tokens + used.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": used.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        }


class EventsAnswer(Answer):
    """An answer whose stream has named events: those that begin it, those of its parts, and those that end
    it."""

    def __init__(self, fields: GenerationFields, request: GenerationRequest) -> None:
        super().__init__(fields, request)
        self._finish = Delta()
        """The delta with the finish reason."""
        self._has_begun = False
        self._last_events: list[Event] = []
        """Those that end the parts."""

    @abstractmethod
    def _first_events(self) -> list[Event]:
        """Those that begin the answer."""

    @abstractmethod
    def _add(self, delta: Delta) -> list[Event]:
        """The events for a delta that the caller gets."""

    @abstractmethod
    def _complete(self) -> list[Event]:
        """End the parts."""

    def chunk(self, delta: Delta) -> bytes:
        return self._written(self._take(delta))

    def fold(self, delta: Delta) -> None:
        self._take(delta)

    async def settle(self) -> None:
        self._last_events = self._complete()

    def _take(self, delta: Delta) -> list[Event]:
        delta = self._taken(delta)
        first = self._begin()
        if delta.finish_reason is not None:
            self._finish = delta
        events = self._add(delta)
        return first + events if first else events

    def _begin(self) -> list[Event]:
        if self._has_begun:
            return []
        self._has_begun = True
        return self._first_events()

    def _written(self, events: list[Event]) -> bytes:
        return b"".join([event(orjson.dumps({"type": kind, **fields}), kind) for kind, fields in events])


def event(data: bytes, name: str | None = None) -> bytes:
    """A server-sent event, as bytes. `data` is a JSON document on one line."""
    if name is None:
        return b"data: " + data + b"\n\n"
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def new_id(prefix: str, separator: str = "-") -> str:
    return f"{prefix}{separator}{os.urandom(16).hex()}"
