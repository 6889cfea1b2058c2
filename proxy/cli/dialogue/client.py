"""Asks a server for answers, and reads each as a stream of events. Any OpenAI-compatible server will do."""

import os
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import aiohttp
import orjson

from engine.upstream.certificate import certificate_fault
from engine.upstream.sse import Event, SSEDecoder

DECISIONS = "X-Weir-Decisions"

MAX_ERROR = 64 * 1024
"""Bytes of an error's body that are read."""

_LOST = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError)


class ChatError(Exception):
    """A request has no answer. The message says why, in the server's words if it gave a reason."""


class LostError(ChatError):
    """The server cannot be reached, or takes no requests now. Another attempt may succeed."""


class NotOperatorError(ChatError):
    """The server shows decisions to its operator, and the client is not the operator."""


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer."""

    channel: Literal["content", "reasoning"]
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A piece of a tool call. The first piece of a call has its id and its name."""

    index: int
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class DecisionMade:
    """A hook's decision. The text that follows from it comes after it."""

    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TextHeld:
    """So many characters are held now."""

    hook: str
    num_held: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The answer's end."""

    finish_reason: str
    stop_reason: str | None


ChatEvent = Text | ToolCall | DecisionMade | TextHeld | Ended


class ChatClient:
    """Asks one server. `url`: its API's base URL. `shows_decisions`: ask for the hooks' decisions as well."""

    def __init__(self, session: aiohttp.ClientSession, url: str, *, shows_decisions: bool = False) -> None:
        self._session = session
        self.url = url
        self.shows_decisions = shows_decisions

    async def models(self) -> list[str]:
        """The names of the server's models. Raises `ChatError`."""
        try:
            async with self._session.get(f"{self.url}/models") as response:
                await _check(response)
                listed = orjson.loads(await response.read())["data"]
                return [str(model["id"]) for model in listed]
        except _LOST as error:
            raise _no_answer(error) from error
        except (ValueError, LookupError, TypeError) as error:
            raise ChatError("the server does not say which models it has") from error

    async def ask(self, body: Mapping[str, Any]) -> AsyncGenerator[ChatEvent, None]:
        """The events of one answer, the last of which is `Ended`. Raises `ChatError`."""
        headers = {DECISIONS: "true"} if self.shows_decisions else {}
        has_ended = False
        try:
            async with self._session.post(
                f"{self.url}/chat/completions", json={**body, "stream": True}, headers=headers
            ) as response:
                await _check(response)
                decoder = SSEDecoder()
                while data := await response.content.readany():
                    for event in decoder.feed(data):
                        for one in _events(event):
                            has_ended = has_ended or isinstance(one, Ended)
                            yield one
        except _LOST as error:
            raise _no_answer(error) from error
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ChatError("the server's answer is not understood") from error
        if not has_ended:
            raise LostError("the answer was cut short")


def _no_answer(error: Exception) -> ChatError:
    if fault := certificate_fault(error):
        return ChatError(f"the server {fault}")  # another attempt would not succeed
    return LostError(_reason(error))


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return f"the server cannot be reached: {os.strerror(number) if number else error.os_error}"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the answer was cut short"
    return str(error) or type(error).__name__


async def _check(response: aiohttp.ClientResponse) -> None:
    """Raise `ChatError` for a response that is an error."""
    if response.status == 200:
        return
    reason = error_message(await response.content.read(MAX_ERROR))
    if response.status == 403 and reason.startswith(DECISIONS):
        raise NotOperatorError("the server shows decisions to its operator alone")
    message = f"{response.status}: {reason}"
    if response.status in (502, 503, 504):
        raise LostError(message)
    raise ChatError(message)


def error_message(body: bytes) -> str:
    """The message of an error's body, if the body has the API's shape."""
    try:
        return str(orjson.loads(body)["error"]["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return "no reason given"


def _events(event: Event) -> Iterator[ChatEvent]:
    if event.data == b"[DONE]":
        return
    value = orjson.loads(event.data)
    if event.event in ("weir.decision", "weir.held") and value.get("output_index"):
        return  # it concerns another output, which is not shown either
    if event.event == "weir.decision":
        yield DecisionMade({**value, "held_seconds": float(value.get("held_seconds") or 0)})
    elif event.event == "weir.held":
        yield TextHeld(str(value["hook"]), int(value["num_held"]))
    elif error := value.get("error"):
        raise ChatError(str(error["message"]))
    else:
        for choice in value["choices"]:
            if choice["index"] == 0:
                yield from _choice(choice)


def _choice(choice: Mapping[str, Any]) -> Iterator[ChatEvent]:
    delta = choice.get("delta") or {}
    if reasoning := delta.get("reasoning_content") or delta.get("reasoning"):
        yield Text("reasoning", str(reasoning))
    if content := delta.get("content"):
        yield Text("content", str(content))
    for call in delta.get("tool_calls") or ():
        function = call.get("function") or {}
        name, arguments = (str(function.get(field) or "") for field in ("name", "arguments"))
        yield ToolCall(int(call["index"]), str(call.get("id") or ""), name, arguments)
    if reason := choice.get("finish_reason"):
        stop = choice.get("stop_reason")
        yield Ended(str(reason), None if stop is None else str(stop))
