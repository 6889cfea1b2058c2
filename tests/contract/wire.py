"""The four endpoints as their clients see them: how to ask each, and one view of what each answers.

An endpoint reads its own shape, and fails if the shape is not well formed. It gives the same view whether the
answer was streamed or not. `cannot` names what a shape has no words for, with the reason.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import orjson

from tests.proxy.conftest import Events
from tests.proxy.response_helpers import check_events as response_of
from tests.proxy.wire.messages.conftest import folded as message_of

JSON = dict[str, Any]

Feature = Literal[
    "reasoning",
    "tool_call",
    "echo",
    "logprobs",
    "token_ids",
    "prompt_logprobs",
    "outputs",  # n > 1
    "prompt_ids",
    "error_code",  # the code of an error, and the field at fault
    "cut_call",  # a call whose arguments end too early
    "finish_tool_calls",
    "stop_token",  # the id of the stop token
    "metadata",
    "done",  # a stream's last event is [DONE]
]


@dataclass
class Output:
    """One output (choice) as its client has it."""

    content: str = ""
    """With the echo in front."""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    """Name and arguments, as a JSON text."""
    tokens: list[str] = field(default_factory=list)
    """The tokens that have a logprob, by name."""
    ids: list[int] = field(default_factory=list)
    finish: str | None = None
    """As chat has it; None after an error."""
    reason: str | int | None = None
    """The stop string, the stop token's id or the guard's reason."""

    def said(self, channel: str) -> str:
        """The channel's text. Of a call of `case.said`, only the text in its arguments."""
        if channel == "tool_call":
            return "".join(text.removeprefix(OPEN).removesuffix(CLOSE) for _, text in self.calls)
        return self.reasoning if channel == "reasoning" else self.content


OPEN, CLOSE = '{"a":"', '"}'
"""Around the text of a call, as `orjson` writes it."""


@dataclass(frozen=True)
class Failure:
    status: int | None
    """None: the error came in a stream."""
    kind: str
    message: str
    code: str | None = None
    param: str | None = None


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    raw: bytes
    outputs: list[Output] = field(default_factory=list)
    usage: tuple[int, int] | None = None
    """Tokens of the prompt and of the outputs; None after an error."""
    error: Failure | None = None
    told: list[tuple[str | None, JSON]] = field(default_factory=list)
    """The events that tell the operator what the hooks decide and hold, by name."""

    @property
    def only(self) -> Output:
        """The only output; without any text, if the answer is an error alone."""
        outputs = self.outputs or [Output()]
        assert len(outputs) == 1
        return outputs[0]

    @property
    def seen(self) -> tuple[Any, ...]:
        """What must not depend on how the answer came."""
        return self.outputs, self.usage, self.error

    @property
    def ended(self) -> tuple[str | None, str | int | None]:
        return self.only.finish, self.only.reason


class Endpoint(ABC):
    name: str
    path: str
    cannot: ClassVar[Mapping[Feature, str]]
    guardrail_error = "guardrail_error"

    def __str__(self) -> str:
        return self.name

    def can(self, *features: str) -> bool:
        return not any(feature in self.cannot for feature in features)

    @abstractmethod
    def asks(self, prompt: str, lead: str | None, **fields: Any) -> JSON:
        """A body that asks for everything the shape can give."""

    def renamed(self, fields: JSON) -> JSON:
        """`fields`, under the names that this endpoint has for those of chat."""
        return fields

    def stream_fields(self) -> JSON:
        """More fields of a body that asks for a stream."""
        return {}

    @abstractmethod
    def whole(self, body: JSON) -> tuple[list[Output], tuple[int, int]]:
        """The outputs and the usage of a whole answer."""

    @abstractmethod
    def streamed(self, stream: Events) -> tuple[list[Output], tuple[int, int] | None, Failure | None]:
        """The same of a stream, and the error that ended it."""

    def failure(self, status: int | None, body: JSON) -> Failure:
        error = body["error"]
        assert list(error) == ["message", "type", "param", "code"]
        return Failure(status, error["type"], error["message"], error["code"], error["param"])

    def tools(self, *names: str) -> list[JSON]:
        return [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in names]


SCHEMA = {"type": "object"}


class Choices(Endpoint):
    """A shape with `choices`."""

    def stream_fields(self) -> JSON:
        return {"stream_options": {"include_usage": True}}

    def whole(self, body: JSON) -> tuple[list[Output], tuple[int, int]]:
        outputs = [Output() for _ in body["choices"]]
        assert [choice["index"] for choice in body["choices"]] == list(range(len(outputs)))
        for choice, output in zip(body["choices"], outputs, strict=True):
            self.add(choice, choice, output)
        return outputs, _counts(body["usage"])

    def streamed(self, stream: Events) -> tuple[list[Output], tuple[int, int] | None, Failure | None]:
        assert stream.events[-1] == (None, "[DONE]")
        *events, _ = stream.events
        error = None
        if events and events[-1][0] == "error":
            error = self.failure(None, events.pop()[1])
        assert {name for name, _ in events} <= {None}
        usage = None
        if error is None:
            last = events.pop()[1]
            assert last["choices"] == []
            usage = _counts(last["usage"])
        assert len({(data["id"], data["object"], data["model"]) for _, data in events}) <= 1
        outputs: dict[int, Output] = {}
        for choice in [choice for _, data in events for choice in data["choices"]]:
            output = outputs.setdefault(choice["index"], Output())
            assert output.finish is None, "nothing follows the end of an output"
            self.add(choice, choice, output)
        assert error is not None or all(output.finish is not None for output in outputs.values())
        return [outputs[index] for index in sorted(outputs)], usage, error

    def add(self, choice: JSON, part: JSON, output: Output) -> None:
        """Add a choice, whole or of a chunk, to what is known of its output."""
        output.finish = choice["finish_reason"]
        output.reason = choice.get("stop_reason")
        output.ids += choice["token_ids"]
        self.add_text(choice, output)

    @abstractmethod
    def add_text(self, choice: JSON, output: Output) -> None: ...


def _counts(usage: JSON) -> tuple[int, int]:
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    return usage["prompt_tokens"], usage["completion_tokens"]


class Chat(Choices):
    name = "chat"
    path = "/v1/chat/completions"
    cannot: ClassVar[Mapping[Feature, str]] = {"prompt_ids": "the prompt of a chat is messages"}

    def asks(self, prompt: str, lead: str | None, **fields: Any) -> JSON:
        messages = [{"role": "user", "content": prompt}]
        if lead is not None:
            messages.append({"role": "assistant", "content": lead})
        asked = {"logprobs": True, "top_logprobs": 5, "return_token_ids": True}
        return {"model": "m", "messages": messages, **asked, **fields}

    def add_text(self, choice: JSON, output: Output) -> None:
        message = choice["delta"] if "delta" in choice else choice["message"]
        output.content += message.get("content") or ""
        output.reasoning += message.get("reasoning_content") or ""
        for place, call in enumerate(message.get("tool_calls", ())):
            index = call.get("index", place)
            if index == len(output.calls):
                assert call["type"] == "function"
                assert call["id"].startswith("call-")
                output.calls.append((call["function"]["name"], ""))
            name, arguments = output.calls[index]
            output.calls[index] = name, arguments + call["function"]["arguments"]
        output.tokens += [one["token"] for one in (choice["logprobs"] or {"content": ()})["content"]]


class Completions(Choices):
    name = "completions"
    path = "/v1/completions"
    cannot: ClassVar[Mapping[Feature, str]] = {
        "reasoning": "the text of a completion is not parsed",
        "tool_call": "the text of a completion is not parsed",
        "cut_call": "it has no calls",
        "finish_tool_calls": "it has no calls",
    }

    def asks(self, prompt: str, lead: str | None, **fields: Any) -> JSON:
        prompt = prompt if lead is None else lead
        return {"model": "m", "prompt": prompt, "logprobs": 5, "return_token_ids": True, **fields}

    def add_text(self, choice: JSON, output: Output) -> None:
        output.content += choice["text"]
        output.tokens += (choice["logprobs"] or {"tokens": ()})["tokens"]


class Responses(Endpoint):
    name = "responses"
    path = "/v1/responses"
    cannot: ClassVar[Mapping[Feature, str]] = {
        "echo": "the prompt of a response is items",
        "prompt_ids": "the prompt of a response is items",
        "prompt_logprobs": "its items have no place for them",
        "token_ids": "its items have no place for them",
        "outputs": "it has one output",
        "finish_tool_calls": "a response with calls is completed, as one without",
    }

    def asks(self, prompt: str, lead: str | None, **fields: Any) -> JSON:
        items = [{"role": "user", "content": prompt}]
        if lead is not None:
            items.append({"role": "assistant", "content": lead})
        asked = {"include": ["message.output_text.logprobs"], "top_logprobs": 5}
        return {"model": "m", "input": items, **asked, **fields}

    def renamed(self, fields: JSON) -> JSON:
        return {{"max_tokens": "max_output_tokens"}.get(name, name): fields[name] for name in fields}

    def whole(self, body: JSON) -> tuple[list[Output], tuple[int, int]]:
        usage = body["usage"]
        output = Output(finish={"completed": "stop"}.get(body["status"]), reason=body.get("stop_reason"))
        if body["status"] == "incomplete":
            why = body["incomplete_details"]["reason"]
            output.finish = {"max_output_tokens": "length"}.get(why, why)
        for item in body["output"]:
            if item["type"] == "function_call":
                output.calls.append((item["name"], item["arguments"]))
                continue
            for part in item["content"]:
                if item["type"] == "reasoning":
                    output.reasoning += part["text"]
                else:
                    output.content += part["text"]
                    output.tokens += [one["token"] for one in part["logprobs"]]
        return [output], (usage["input_tokens"], usage["output_tokens"])

    def streamed(self, stream: Events) -> tuple[list[Output], tuple[int, int] | None, Failure | None]:
        outputs, usage = self.whole(response_of(stream))
        errors = [data for name, data in stream.events if name == "error"]
        if not errors:
            return outputs, usage, None
        (error,) = errors
        assert [name for name, _ in stream.events[-3:]] == ["response.failed", "error", None]
        assert all(error[name] == error["error"][name] for name in ("message", "param", "code"))
        return outputs, None, self.failure(None, error)

    def tools(self, *names: str) -> list[JSON]:
        return [{"type": "function", "name": name, "parameters": SCHEMA} for name in names]


class Messages(Endpoint):
    name = "messages"
    path = "/v1/messages"
    guardrail_error = "api_error"
    cannot: ClassVar[Mapping[Feature, str]] = {
        "echo": "the prompt of a message is turns",
        "prompt_ids": "the prompt of a message is turns",
        "prompt_logprobs": "the API has none",
        "error_code": "an error has a type and a message",
        "metadata": "the API's has the user alone",
        "logprobs": "the API has none",
        "token_ids": "the API has none",
        "outputs": "the API has one output",
        "cut_call": "clients run a call as soon as its input reads as an object",
        "stop_token": "the API tells stop strings alone",
        "done": "a stream ends with message_stop, or with an error",
    }
    _finishes: ClassVar[Mapping[str, str]] = {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "max_tokens": "length",
        "tool_use": "tool_calls",
        "refusal": "content_filter",
    }

    def asks(self, prompt: str, lead: str | None, **fields: Any) -> JSON:
        turns = [{"role": "user", "content": prompt}]
        if lead is not None:
            turns.append({"role": "assistant", "content": lead})
        return {"model": "m", "max_tokens": 64, "messages": turns, **fields}

    def renamed(self, fields: JSON) -> JSON:
        renamed = {{"stop": "stop_sequences"}.get(name, name): fields[name] for name in fields}
        if "user" in renamed:
            renamed.setdefault("metadata", {})["user_id"] = renamed.pop("user")
        return renamed

    def whole(self, body: JSON) -> tuple[list[Output], tuple[int, int]]:
        output = Output(finish=self._finishes.get(body["stop_reason"]), reason=body["stop_sequence"])
        details = body.get("stop_details")
        assert details or output.finish != "content_filter"
        if details:
            output.reason = details["explanation"]
        for block in body["content"]:
            if block["type"] == "text":
                output.content += block["text"]
            elif block["type"] == "thinking":
                output.reasoning += block["thinking"]
            else:
                assert block["id"].startswith("toolu_")
                output.calls.append((block["name"], orjson.dumps(block["input"]).decode()))
        usage = body["usage"]
        num_prompt = usage["input_tokens"] + usage["cache_read_input_tokens"]
        return [output], (num_prompt, usage["output_tokens"])

    def streamed(self, stream: Events) -> tuple[list[Output], tuple[int, int] | None, Failure | None]:
        *events, (name, last) = stream.events
        if name != "error":
            return *self.whole(message_of(stream.events)), None
        outputs, _ = self.whole(message_of(stream.events))
        assert all(name != "error" for name, _ in events)
        return outputs, None, self.failure(None, last)

    def failure(self, status: int | None, body: JSON) -> Failure:
        assert list(body) == ["type", "error", "request_id"]
        assert body["type"] == "error"
        assert list(body["error"]) == ["type", "message"]
        return Failure(status, body["error"]["type"], body["error"]["message"])

    def tools(self, *names: str) -> list[JSON]:
        return [{"name": name, "input_schema": SCHEMA} for name in names]


ENDPOINTS: Sequence[Endpoint] = (Chat(), Completions(), Responses(), Messages())


def strings(value: Any) -> Iterator[str]:
    """Every text in a JSON value: keys, values, and lists of numbers that are a text's bytes."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from strings(inner)
    elif isinstance(value, list):
        if value and all(isinstance(one, int) and 0 <= one < 256 for one in value):
            yield bytes(value).decode(errors="replace")
        for inner in value:
            yield from strings(inner)
