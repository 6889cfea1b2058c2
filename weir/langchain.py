"""Guards chat models of LangChain, alone and in its agents.

    model = weir.langchain.GuardedChatModel(model=init_chat_model("openai:gpt-5"), guards=guards)
    agent = create_agent(model, tools, middleware=[weir.langchain.GuardMiddleware(guards)])

A guarded model is a chat model. It calls the other model without its callbacks, so that nobody who listens to
LangChain's events gets a token that the hooks have not released. Text, reasoning and calls of tools pass the
hooks. All else of an answer but its usage is left out: logprobs and metadata repeat text.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import aclosing, closing
from typing import Any

import orjson

from engine.protocol import Delta, RequestError, ToolCall
from engine.protocol.call_ids import call_key
from hooks.api.extras import from_extra
from weir.answer import Answer, model_in_own_words
from weir.guards import Guards, json_fields

with from_extra("langchain", "LangChain", "weir.langchain"):
    from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
    from langchain_core.caches import BaseCache
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import (
        AIMessage,
        AIMessageChunk,
        BaseMessage,
        convert_to_messages,
        convert_to_openai_messages,
        message_chunk_to_message,
    )
    from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
    from langchain_core.runnables import Runnable


class GuardedChatModel(BaseChatModel):
    """A chat model whose prompts and answers hooks guard.

    `model`: the model that is asked. `caller`: see `Guards.prompt`. A call raises `RefusedError` for a prompt
    that a hook refuses, `HookError` if a hook fails, `RequestError` for an answer that no hook can read, and
    `EngineError` if the model fails: its own error may quote text that no hook has read.
    """

    model: BaseChatModel
    guards: Any
    """A `Guards`."""
    caller: str = ""
    cache: BaseCache | bool | None = False
    """LangChain's cache of answers is left out: its keys know neither the guards nor the model."""

    @property
    def _llm_type(self) -> str:
        return f"guarded-{self.model._llm_type}"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return dict(self.model._identifying_params)

    def bind_tools(self, tools: Sequence[Any], **others: Any) -> Runnable[Any, AIMessage]:
        """As the other model's: the tools in its own form."""
        bound: Any = self.model.bind_tools(tools, **others)
        return self.bind(**bound.kwargs)

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **others: Any
    ) -> ChatResult:
        return _result([chunk.message for chunk in self._released(messages, stop, others, _whole)])

    def _stream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **others: Any
    ) -> Iterator[ChatGenerationChunk]:
        source = _whole if type(self.model)._stream is BaseChatModel._stream else _streamed
        with closing(self._released(messages, stop, others, source)) as released:
            for chunk in released:
                if run_manager is not None:
                    run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk

    def _released(
        self, messages: list[BaseMessage], stop: Any, others: dict[str, Any], source: "_Source"
    ) -> Generator[ChatGenerationChunk, None, None]:
        given, extra = _openai(messages), _extra(messages, stop, others)
        answer = self.guards.messages(given, tools=_tools(others), extra=extra, caller=self.caller)
        reader, writer = _Reader(), _Writer(answer)
        asked = _admitted(messages, given, answer), *_settings(stop, others, answer)
        with answer.deltas(_deltas(reader, source(self.model, *asked))) as released:
            for delta in released:
                yield writer.chunk(delta)
        yield writer.last(reader)

    async def _agenerate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **others: Any
    ) -> ChatResult:
        return _result([c.message async for c in self._areleased(messages, stop, others, _awhole)])

    async def _astream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **others: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        kind = type(self.model)
        streams = kind._astream is not BaseChatModel._astream or kind._stream is not BaseChatModel._stream
        source = _astreamed if streams else _awhole
        async with aclosing(self._areleased(messages, stop, others, source)) as released:
            async for chunk in released:
                if run_manager is not None:
                    await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk

    async def _areleased(
        self, messages: list[BaseMessage], stop: Any, others: dict[str, Any], source: "_AsyncSource"
    ) -> AsyncGenerator[ChatGenerationChunk, None]:
        given, extra = _openai(messages), _extra(messages, stop, others)
        answer = await self.guards.amessages(given, tools=_tools(others), extra=extra, caller=self.caller)
        reader, writer = _Reader(), _Writer(answer)
        asked = _admitted(messages, given, answer), *_settings(stop, others, answer)
        async with answer.deltas(_adeltas(reader, source(self.model, *asked))) as released:
            async for delta in released:
                yield writer.chunk(delta)
        yield writer.last(reader)


class GuardMiddleware(AgentMiddleware[Any, Any, Any]):
    """Guards each call that an agent makes of its model, also what the agent streams. `caller`: see
    `Guards.prompt`."""

    def __init__(self, guards: Guards, *, caller: str = "") -> None:
        super().__init__()
        self._guards, self._caller = guards, caller

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        return handler(self._guarded(request))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        return await handler(self._guarded(request))

    def _guarded(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        model = GuardedChatModel(model=request.model, guards=self._guards, caller=self._caller)
        return request.override(model=model)


_Messages = Generator[AIMessage, None, None]
_Source = Callable[[BaseChatModel, list[BaseMessage], Any, dict[str, Any]], _Messages]
_AsyncSource = Callable[
    [BaseChatModel, list[BaseMessage], Any, dict[str, Any]], AsyncGenerator[AIMessage, None]
]


def _whole(model: BaseChatModel, messages: list[BaseMessage], stop: Any, others: Any) -> _Messages:
    with model_in_own_words():
        result = model._generate(messages, stop=stop, **others)
    yield _only(result)


def _streamed(model: BaseChatModel, messages: list[BaseMessage], stop: Any, others: Any) -> _Messages:
    chunks: Any = model._stream(messages, stop=stop, **others)
    with model_in_own_words(), closing(chunks):
        for chunk in chunks:
            yield chunk.message


async def _awhole(
    model: BaseChatModel, messages: list[BaseMessage], stop: Any, others: Any
) -> AsyncGenerator[AIMessage, None]:
    with model_in_own_words():
        result = await model._agenerate(messages, stop=stop, **others)
    yield _only(result)


async def _astreamed(
    model: BaseChatModel, messages: list[BaseMessage], stop: Any, others: Any
) -> AsyncGenerator[AIMessage, None]:
    with model_in_own_words():
        async with aclosing(model._astream(messages, stop=stop, **others)) as chunks:
            async for chunk in chunks:
                yield chunk.message


def _only(result: ChatResult) -> AIMessage:
    if len(result.generations) != 1:
        raise RequestError("weir.langchain guards one answer of a call, not several.", param="n")
    message = result.generations[0].message
    assert isinstance(message, AIMessage)
    return message


def _deltas(reader: "_Reader", messages: _Messages) -> Generator[Delta, None, None]:
    with closing(messages):
        for message in messages:
            yield from reader.feed(message)


async def _adeltas(
    reader: "_Reader", messages: AsyncGenerator[AIMessage, None]
) -> AsyncGenerator[Delta, None]:
    async with aclosing(messages):
        async for message in messages:
            for delta in reader.feed(message):
                yield delta


class _Reader:
    """Reads an answer, whole or in chunks."""

    def __init__(self) -> None:
        self.usage: Any = None
        self._calls: dict[Any, ToolCall] = {}
        """By LangChain's index."""

    def feed(self, message: AIMessage) -> Iterator[Delta]:
        """Raises `RequestError` for a block that no hook can read."""
        if message.usage_metadata is not None:
            self.usage = message.usage_metadata
        for block in message.content_blocks:
            match block:
                case {"type": "text", "text": str(text)}:
                    yield Delta(text=text)
                case {"type": "reasoning"}:
                    yield Delta(text=str(block.get("reasoning") or ""), channel="reasoning")
                case {"type": "tool_call_chunk"}:
                    yield self._call(block.get("index"), block.get("name"), block.get("args") or "")
                case {"type": "tool_call", "name": str(name), "args": arguments}:
                    yield self._call(object(), name, orjson.dumps(arguments).decode())
                case _:
                    raise RequestError(f"No hook reads a block of the type {block.get('type')}.")

    def _call(self, index: Any, name: str | None, text: str) -> Delta:
        call = self._calls.get(index)
        if call is None:
            if not name:
                raise RequestError("A call of a tool begins with its name.")
            call = self._calls[index] = ToolCall(len(self._calls), name)
        return Delta(text=text, channel="tool_call", tool_call=call)


class _Writer:
    """Writes released deltas as chunks. Ids of calls are the library's: no hook has seen the model's."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._begun: set[int] = set()

    def chunk(self, delta: Delta) -> ChatGenerationChunk:
        message = AIMessageChunk(content=delta.text if delta.channel == "content" else "")
        if delta.channel == "reasoning":
            message.additional_kwargs = {"reasoning_content": delta.text}
        elif (call := delta.tool_call) is not None:
            is_first = call.index not in self._begun
            self._begun.add(call.index)
            key = call_key(self._answer.request.request_id, 0, call.index)
            own = {"name": call.name, "id": f"call_{key}"} if is_first else {"name": None, "id": None}
            piece: Any = {"type": "tool_call_chunk", "args": delta.text, "index": call.index, **own}
            message = AIMessageChunk(content="", tool_call_chunks=[piece])
        return ChatGenerationChunk(message=message)

    def last(self, reader: _Reader) -> ChatGenerationChunk:
        """The end: the usage, and the reason of a hook that ended the answer."""
        reason = self._answer.stop_reason
        told = {} if reason is None else {"finish_reason": "content_filter", "stop_reason": reason}
        message = AIMessageChunk(content="", usage_metadata=reader.usage, response_metadata=told)
        message.chunk_position = "last"
        return ChatGenerationChunk(message=message)


def _result(chunks: list[Any]) -> ChatResult:
    first, *rest = chunks
    whole = message_chunk_to_message(first + rest if rest else first)
    assert isinstance(whole, AIMessage)
    return ChatResult(generations=[ChatGeneration(message=whole)])


def _openai(messages: list[BaseMessage]) -> list[dict[str, Any]]:
    given = [convert_to_openai_messages(message) for message in messages]
    assert all(isinstance(one, dict) for one in given)
    return given


def _tools(others: dict[str, Any]) -> list[dict[str, Any]]:
    """The tools that are in the form of chats. Hooks read no other form."""
    tools = others.get("tools") or ()
    return [tool for tool in tools if isinstance(tool, dict) and isinstance(tool.get("function"), dict)]


_IN_CHATS = ("text", "image", "image_url", "audio", "input_audio", "file", "video", "tool_use")
"""Types of content blocks that `_openai` has."""
_BESIDE = ("additional_kwargs", "invalid_tool_calls")
"""Fields of a message that models are sent and `_openai` leaves out: earlier reasoning, and broken calls."""


def _extra(messages: list[BaseMessage], stop: Any, others: dict[str, Any]) -> dict[str, Any]:
    """All that the model is sent beside the chat, for hooks to read."""
    given = {"stop": stop} if stop else {}  # a stop string says that the caller may have cut the answer
    return {**given, "settings": json_fields(others), "messages": [*map(_beside, messages)]}


def _beside(message: BaseMessage) -> dict[str, Any]:
    fields = {name: value for name in _BESIDE if (value := getattr(message, name, None))}
    blocks = message.content if isinstance(message.content, list) else []
    unread = {
        str(i): block
        for i, block in enumerate(blocks)
        if isinstance(block, dict) and block.get("type") not in _IN_CHATS
    }
    beside = {**fields, "blocks": unread}
    if len(read := json_fields(beside)) < len(beside):
        raise RequestError("No hook reads a message's fields that are no JSON.", param="messages")
    return read


def _settings(stop: Any, others: dict[str, Any], answer: Answer) -> tuple[Any, dict[str, Any]]:
    """`stop` and the other settings, as hooks let them go on."""
    extra = answer.request.extra
    return [*extra["stop"]] if stop else stop, {**others, **extra["settings"]}


def _admitted(messages: list[BaseMessage], given: list[dict[str, Any]], answer: Answer) -> list[BaseMessage]:
    """The messages as hooks let them go on. One that no hook has changed stays as it is."""
    admitted = [dict(one) for one in answer.messages]
    if len(admitted) != len(given):
        return list(convert_to_messages(admitted))
    triples = zip(messages, given, admitted, answer.request.extra["messages"], strict=True)
    return [
        _with(own if one == before else convert_to_messages([one])[0], beside)
        for own, before, one, beside in triples
    ]


def _with(message: BaseMessage, beside: dict[str, Any]) -> BaseMessage:
    fields = {name: beside[name] for name in _BESIDE if name in beside}
    if beside["blocks"] and isinstance(message.content, list):
        blocks = enumerate(message.content)
        fields["content"] = [beside["blocks"].get(str(i), block) for i, block in blocks]
    return message.model_copy(update=fields)
