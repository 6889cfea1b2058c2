"""The endpoints as the official SDKs see them: a request, the types, and the methods that ask."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import anthropic
import openai
from anthropic import AsyncAnthropic
from anthropic.types import Message, RawMessageStreamEvent
from openai import AsyncOpenAI, ContentFilterFinishReasonError, LengthFinishReasonError
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent

JSONObject = dict[str, Any]


class SDKs(NamedTuple):
    openai: AsyncOpenAI
    anthropic: AsyncAnthropic


@asynccontextmanager
async def sdks(url: str) -> AsyncIterator[SDKs]:
    """The official clients of the server at `url`."""
    # Without `verify=False`, each client reads all of the machine's certificates.
    options: Any = {"api_key": "any", "max_retries": 0}
    async with (
        openai.DefaultAsyncHttpxClient(verify=False) as http,
        AsyncOpenAI(base_url=f"{url}/v1", http_client=http, **options) as of_openai,
        anthropic.DefaultAsyncHttpxClient(verify=False) as http,
        AsyncAnthropic(base_url=url, http_client=http, **options) as of_anthropic,
    ):
        yield SDKs(of_openai, of_anthropic)


@dataclass(frozen=True)
class Endpoint:
    path: str
    body: JSONObject
    whole_type: Any
    event_type: Any
    resource: Callable[[SDKs], Any]
    """The part of the SDK that asks this endpoint."""
    fold: Callable[[Any, JSONObject], Awaitable[Any]]
    """Asks the resource for a stream. The SDK's helper makes a whole answer of it."""

    async def whole(self, sdks: SDKs, body: JSONObject) -> JSONObject:
        """The answer without streaming."""
        create = self.resource(sdks).create
        answer: JSONObject = (await create(**_arguments(create, body))).model_dump()
        return answer

    async def folded(self, sdks: SDKs, body: JSONObject) -> JSONObject:
        """The answer that the SDK makes of a stream."""
        answer: JSONObject = (await self.fold(self.resource(sdks), body)).model_dump()
        return answer


def _arguments(method: Any, body: JSONObject) -> JSONObject:
    """The method's arguments for the body. Fields that the SDK does not know go as `extra_body`."""
    known = inspect.signature(method).parameters
    arguments: JSONObject = {"extra_body": {}}
    for name, value in body.items():
        (arguments if name in known else arguments["extra_body"])[name] = value
    return arguments


async def _fold_chat(resource: Any, body: JSONObject) -> Any:
    """The helper gives no cut or filtered chat as a whole: it is in the helper's error."""
    try:
        async with resource.stream(**_arguments(resource.stream, body)) as stream:
            return await stream.get_final_completion()
    except (LengthFinishReasonError, ContentFilterFinishReasonError) as error:
        return error.completion


async def _fold_completion(resource: Any, body: JSONObject) -> Any:
    """The SDK has no helper for completions."""
    choices: list[Any] = [None] * body.get("n", 1)
    usage = chunk = None
    async for chunk in await resource.create(**_arguments(resource.create, body), stream=True):
        usage = chunk.usage or usage
        for part in chunk.choices:
            whole = choices[part.index] = choices[part.index] or part
            if whole is part:
                continue
            whole.text += part.text
            whole.finish_reason = part.finish_reason or whole.finish_reason
            for name, values in part.logprobs or ():
                getattr(whole.logprobs, name).extend(values)
    assert chunk is not None
    return chunk.model_copy(update={"choices": choices, "usage": usage})


async def _fold_response(resource: Any, body: JSONObject) -> Any:
    """The helper gives no incomplete response as a whole: it is in the last event."""
    async with resource.stream(**_arguments(resource.stream, body)) as stream:
        *_, last = [event async for event in stream]
        return await stream.get_final_response() if last.type == "response.completed" else last.response


async def _fold_message(resource: Any, body: JSONObject) -> Any:
    async with resource.stream(**_arguments(resource.stream, body)) as stream:
        return await stream.get_final_message()


ASK = {"role": "user", "content": "Hi"}
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}}
FUNCTIONS = [{"name": name, "parameters": PARAMETERS} for name in ("f", "g")]

ENDPOINT = {
    "chat": Endpoint(
        "/v1/chat/completions",
        {
            "model": "m",
            "messages": [ASK],
            "tools": [{"type": "function", "function": function} for function in FUNCTIONS],
        },
        ChatCompletion,
        ChatCompletionChunk,
        lambda sdks: sdks.openai.chat.completions,
        _fold_chat,
    ),
    "completions": Endpoint(
        "/v1/completions",
        {"model": "m", "prompt": "Hi"},
        Completion,
        Completion,
        lambda sdks: sdks.openai.completions,
        _fold_completion,
    ),
    "responses": Endpoint(
        "/v1/responses",
        {
            "model": "m",
            "input": [ASK],
            "tools": [{"type": "function", "strict": False, **function} for function in FUNCTIONS],
        },
        Response,
        ResponseStreamEvent,
        lambda sdks: sdks.openai.responses,
        _fold_response,
    ),
    "messages": Endpoint(
        "/v1/messages",
        {
            "model": "m",
            "max_tokens": 64,
            "messages": [ASK],
            "tools": [{"name": one["name"], "input_schema": one["parameters"]} for one in FUNCTIONS],
        },
        Message,
        RawMessageStreamEvent,
        lambda sdks: sdks.anthropic.messages,
        _fold_message,
    ),
}
