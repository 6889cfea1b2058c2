"""Guards a model of Pydantic AI.

    agent = Agent(weir.pydantic_ai.GuardedModel("openai:gpt-5", guards))

Text, thinking and calls of tools pass the hooks, streamed and whole. All else of an answer but its usage is
left out, and a part that no hook can read ends the answer with an error.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from engine.protocol import Delta, EngineError, RequestError, ToolCall
from engine.protocol.call_ids import call_key
from hooks.api.extras import from_extra
from weir.answer import Answer, model_in_own_words
from weir.guards import Guards, json_fields

with from_extra("pydantic-ai", "Pydantic AI", "weir.pydantic_ai"):
    from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
    from pydantic_ai.messages import (
        ModelMessage,
        ModelRequest,
        ModelResponse,
        ModelResponseStreamEvent,
        PartDeltaEvent,
        PartStartEvent,
        RetryPromptPart,
        SystemPromptPart,
        TextPart,
        TextPartDelta,
        ThinkingPart,
        ThinkingPartDelta,
        ToolCallPart,
        ToolCallPartDelta,
        ToolReturnPart,
        UserPromptPart,
    )
    from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
    from pydantic_ai.models.wrapper import WrapperModel
    from pydantic_ai.tools import ToolDefinition
    from pydantic_core import PydanticSerializationError, to_jsonable_python


class GuardedModel(WrapperModel):
    """A model whose prompts and answers hooks guard.

    `wrapped`: the model that is asked, or its name. `caller`: see `Guards.prompt`. A request raises
    `RefusedError` for a prompt that a hook refuses, `HookError` if a hook fails, `RequestError` for a part
    that no hook can read, and Pydantic AI's `ModelAPIError` if the model fails: without the model's message,
    which may quote text that no hook has read.
    """

    def __init__(self, wrapped: Model | str, guards: Guards, *, caller: str = "") -> None:
        super().__init__(wrapped)
        self._guards, self._caller = guards, caller

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: Any,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        answer, *admitted = await self._admitted(messages, model_settings, model_request_parameters)
        with _failures_of(self.wrapped):
            response = await self.wrapped.request(*admitted)
        reader = _Reader()
        events = _later([PartStartEvent(index=i, part=part) for i, part in enumerate(response.parts)])
        guarded = _Guarded(model_request_parameters, answer, response, _deltas(reader, events))
        async for _ in guarded:
            pass
        return replace(guarded.get(), usage=response.usage, timestamp=response.timestamp)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: Any,
        model_request_parameters: ModelRequestParameters,
        run_context: Any = None,
    ) -> AsyncGenerator[StreamedResponse, None]:
        answer, *admitted = await self._admitted(messages, model_settings, model_request_parameters)
        async with AsyncExitStack() as stack:
            with _failures_of(self.wrapped):
                streamed = self.wrapped.request_stream(*admitted, run_context)
                response = await stack.enter_async_context(streamed)
            events = _events_of(self.wrapped, response)
            guarded = _Guarded(model_request_parameters, answer, response, _deltas(_Reader(), events))
            try:
                yield guarded
            finally:
                await guarded.close_stream()

    async def _admitted(
        self, messages: list[ModelMessage], settings: Any, parameters: ModelRequestParameters
    ) -> tuple[Answer, list[ModelMessage], Any, ModelRequestParameters]:
        """The guard of the answer, and the messages, settings, instructions and tools as hooks let them go
        on."""
        texts, parts = _texts(messages), parameters.instruction_parts or []
        given = [{"role": "system", "content": part.content} for part in parts]
        given += [{"role": role, "content": text} for _, role, text in texts]
        tools = [_shown(tool) for tool in (*parameters.function_tools, *parameters.output_tools)]
        beside = [*map(_beside, messages)]
        extra = {"settings": json_fields(settings or {}), "messages": beside}
        answer = await self._guards.amessages(given, tools=tools, extra=extra, caller=self._caller)
        changed = [str(one["content"]) for one in answer.messages]
        if len(changed) != len(given):
            raise RequestError("A hook has changed the number of messages.", param="messages")
        if [tool["function"]["name"] for tool in answer.tools] != [one["function"]["name"] for one in tools]:
            raise RequestError("A hook has changed the tools or a tool's name.", param="tools")
        new = zip(texts, changed[len(parts) :], strict=True)
        by_place = {place: text for (place, _, old), text in new if text != old}
        admitted = [_with(message, i, by_place) for i, message in enumerate(messages)]
        changes = zip(admitted, beside, answer.request.extra["messages"], strict=True)
        admitted = [_with_beside(message, before, after) for message, before, after in changes]
        functions = [tool["function"] for tool in answer.tools]
        num_functions = len(parameters.function_tools)
        return (
            answer,
            admitted,
            settings and {**settings, **answer.request.extra["settings"]},
            replace(
                parameters,
                instruction_parts=parameters.instruction_parts
                and [replace(part, content=text) for part, text in zip(parts, changed, strict=False)],
                function_tools=[*map(_defined, parameters.function_tools, functions)],
                output_tools=[*map(_defined, parameters.output_tools, functions[num_functions:])],
            ),
        )


@contextmanager
def _failures_of(model: Model) -> Generator[None, None, None]:
    """Raise the model's errors in Weir's words, as errors of Pydantic AI's, after which it asks another
    model."""
    try:
        with model_in_own_words():
            yield
    except EngineError as error:
        if error.status == 500:
            raise ModelAPIError(model.model_name, str(error)) from None
        raise ModelHTTPError(error.status, model.model_name) from None


async def _events_of(model: Model, response: StreamedResponse) -> AsyncGenerator[Any, None]:
    with _failures_of(model):
        async for event in response:
            yield event


def _shown(tool: ToolDefinition) -> dict[str, Any]:
    """A tool's definition as hooks read it."""
    function = {"name": tool.name, "description": tool.description or ""}
    return {"type": "function", "function": {**function, "parameters": tool.parameters_json_schema}}


def _defined(tool: ToolDefinition, function: Mapping[str, Any]) -> ToolDefinition:
    """The definition, as hooks let it go on."""
    description = function["description"] or tool.description
    return replace(tool, description=description, parameters_json_schema=function["parameters"])


_Place = tuple[int, int | None, int | None]
"""A message, its part (None: the instructions), and the item of the part's content."""


def _texts(messages: list[ModelMessage]) -> list[tuple[_Place, str, str]]:
    """The texts of the prompt: place, role, text. Raises `RequestError` for a part that no hook can read."""
    texts: list[tuple[_Place, str, str]] = []
    for i, message in enumerate(messages):
        if isinstance(message, ModelRequest) and message.instructions:
            texts.append(((i, None, None), "system", message.instructions))
        for j, part in enumerate(message.parts):
            role = _ROLES.get(type(part), "user")
            for k, item in enumerate(_items(part)):
                if not isinstance(item, str):
                    raise RequestError(f"No hook reads a prompt's {type(item).__name__}.", param="messages")
                texts.append(((i, j, k), role, item))
    return texts


def _items(part: Any) -> list[Any]:
    """The part's texts, and what is no text."""
    match part:
        case ToolCallPart():
            return [part.args_as_json_str()]
        case ToolReturnPart():
            return [part.model_response_str()]
        case RetryPromptPart():
            return [part.model_response()]
    content = getattr(part, "content", part)
    return [*content] if isinstance(content, list | tuple) else [content]


_ROLES: dict[type[Any], str] = {
    SystemPromptPart: "system",
    UserPromptPart: "user",
    TextPart: "assistant",
    ThinkingPart: "assistant",
    ToolCallPart: "assistant",
}


def _with(message: ModelMessage, i: int, new: dict[_Place, str]) -> ModelMessage:
    own = {place[1:]: text for place, text in new.items() if place[0] == i}
    if not own:
        return message
    parts: list[Any] = list(message.parts)
    for (j, k), text in own.items():
        if j is None or k is None:
            continue
        part = parts[j]
        if isinstance(part, ToolCallPart):
            parts[j] = replace(part, args=text)
        elif isinstance(part, UserPromptPart) and not isinstance(part.content, str):
            parts[j] = replace(part, content=[*part.content[:k], text, *part.content[k + 1 :]])
        else:
            parts[j] = replace(part, content=text)
    if (None, None) in own and isinstance(message, ModelRequest):
        return replace(message, parts=parts, instructions=own[None, None])
    return replace(message, parts=parts)


_BESIDE = {"citations", "id", "provider_details", "signature", "tool_call_id", "tool_name"}
"""Fields of a part that models may be sent beside its text."""
_BESIDE_PARTS = {"provider_details", "provider_response_id"}
"""The same of a message."""


def _beside(message: ModelMessage) -> dict[str, Any]:
    """The texts of a message beside those of `_texts`, as JSON. Raises `RequestError` for a field that is
    none."""
    parts = {str(j): _fields(part, _BESIDE) for j, part in enumerate(message.parts)}
    return {**_fields(message, _BESIDE_PARTS), "parts": parts}


def _fields(one: Any, names: set[str]) -> dict[str, Any]:
    given = {name: value for name in sorted(names) if (value := getattr(one, name, None))}
    try:
        fields: dict[str, Any] = to_jsonable_python(given)
    except PydanticSerializationError:
        raise RequestError("No hook reads a message's fields that are no JSON.", param="messages") from None
    return fields


def _with_beside(message: ModelMessage, before: Mapping[str, Any], after: Mapping[str, Any]) -> ModelMessage:
    if after == before:
        return message
    pairs = [(part, before["parts"][str(j)], after["parts"][str(j)]) for j, part in enumerate(message.parts)]
    parts: Any = [replace(part, **_changed(old, new)) for part, old, new in pairs]
    own = {name: after[name] for name in _BESIDE_PARTS & before.keys()}
    return replace(message, parts=parts, **_changed(before, own))


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in after.items() if value != before[name]}


class _Reader:
    """Reads the events of an answer."""

    def __init__(self) -> None:
        self._calls: dict[int, ToolCall] = {}

    def feed(self, event: Any) -> Delta | None:
        match event:
            case PartStartEvent(part=TextPart(content=text)):
                return Delta(text=text)
            case PartStartEvent(part=ThinkingPart(content=text)):
                return Delta(text=text, channel="reasoning")
            case PartStartEvent(index=index, part=ToolCallPart() as part):
                call = self._calls[index] = ToolCall(len(self._calls), part.tool_name)
                # The beginning of a stream's arguments is no JSON yet.
                text = part.args if isinstance(part.args, str) else _arguments(part)
                return Delta(text=text, channel="tool_call", tool_call=call)
            case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                return Delta(text=text)
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=piece)):
                return Delta(text=piece or "", channel="reasoning")
            case PartDeltaEvent(
                index=index, delta=ToolCallPartDelta(args_delta=str() | None as piece, tool_name_delta=None)
            ):
                return Delta(text=piece or "", channel="tool_call", tool_call=self._calls[index])
            case PartStartEvent() | PartDeltaEvent():
                raise RequestError("No hook reads a part of this answer.")
        return None


def _arguments(part: ToolCallPart) -> str:
    return "" if part.args is None else part.args_as_json_str()


async def _deltas(reader: _Reader, events: AsyncIterator[Any]) -> AsyncGenerator[Delta, None]:
    async for event in events:
        if (delta := reader.feed(event)) is not None:
            yield delta


async def _later(events: list[Any]) -> AsyncGenerator[Any, None]:
    for event in events:
        yield event


@dataclass
class _Guarded(StreamedResponse):
    """The parts of a response that hooks release."""

    _answer: Answer
    _source: Any
    """The model's response, whole or streamed."""
    _given: AsyncGenerator[Delta, None]

    def __post_init__(self) -> None:
        self._released = self._answer.deltas(self._given)

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        begun: set[int] = set()
        async with self._released as released:
            async for delta in released:
                for event in self._events(delta, begun):
                    yield event
        if self._answer.stop_reason is not None:
            self.finish_reason = "content_filter"
            self.provider_details = {"stop_reason": self._answer.stop_reason}
            if hasattr(self._source, "cancel"):
                await self._source.cancel()
        if isinstance(self._source, StreamedResponse):
            self._usage = self._source.usage

    def _events(self, delta: Delta, begun: set[int]) -> Any:
        parts = self._parts_manager
        if (call := delta.tool_call) is not None:
            name = None if call.index in begun else call.name
            begun.add(call.index)
            own = f"call_{call_key(self._answer.request.request_id, 0, call.index)}"
            return parts.handle_tool_call_delta_events(
                vendor_part_id=call.index, tool_name=name, args=delta.text, tool_call_id=own
            )
        if not delta.text:
            return ()
        if delta.channel == "reasoning":
            return parts.handle_thinking_delta(vendor_part_id="thinking", content=delta.text)
        return parts.handle_text_delta(vendor_part_id="text", content=delta.text)

    async def close_stream(self) -> None:
        await self._released.aclose()

    @property
    def model_name(self) -> str:
        return str(self._source.model_name)

    @property
    def provider_name(self) -> str | None:
        return self._source.provider_name  # type: ignore[no-any-return]

    @property
    def provider_url(self) -> str | None:
        return self._source.provider_url  # type: ignore[no-any-return]

    @property
    def timestamp(self) -> datetime:
        return self._source.timestamp  # type: ignore[no-any-return]
