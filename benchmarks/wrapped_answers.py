"""The ways through which a program, or another server, gets a model's answer of the library's guards.

Each takes the pieces of one answer, has a server or a model in memory say them, streamed or whole and cut
anywhere, and returns what comes out of the wrapper or adapter. `benchmarks.leaks_wrappers` judges it.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar

import httpx2
import orjson

from engine.protocol import Token
from weir import Guards

T = TypeVar("T")

Pieces = Sequence[Sequence[Token]]
Wrapper = Callable[[Guards, random.Random, Pieces], tuple[str, bytes | None]]
"""The text that comes out of a server's pieces, and the bytes of the tokens in its logprobs, if any."""
ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "logprobs": True}


def _events(pieces: Pieces) -> bytes:
    """A chat with the pieces, as a server streams it."""
    choices: list[dict[str, Any]] = []
    for tokens in pieces:
        logprobs = [
            {
                "token": one.raw.decode("utf-8", "replace"),
                "logprob": -0.5,
                "bytes": list(one.raw),
                "top_logprobs": [],
            }
            for one in tokens
        ]
        text = "".join(one.text for one in tokens)
        choices.append({"index": 0, "delta": {"content": text}, "logprobs": {"content": logprobs}})
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    chunks = [orjson.dumps({"choices": [choice]}) for choice in choices]
    return b"".join(b"data: %b\n\n" % chunk for chunk in [*chunks, b"[DONE]"])


def _blocks(pieces: Pieces) -> bytes:
    """A message with the pieces, as a server streams it."""
    made: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    ]
    for tokens in pieces:
        delta = {"type": "text_delta", "text": "".join(one.text for one in tokens)}
        made.append({"type": "content_block_delta", "index": 0, "delta": delta})
    made += [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    return b"".join(b"event: %b\ndata: %b\n\n" % (e["type"].encode(), orjson.dumps(e)) for e in made)


def _cut(rng: random.Random, data: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        size = rng.choice((1, 7, 60, 300, 5000))
        yield data[start : start + size]
        start += size


class _Cut(httpx2.SyncByteStream):
    def __init__(self, rng: random.Random, data: bytes) -> None:
        self._rng, self._data = rng, data

    def __iter__(self) -> Iterator[bytes]:
        return _cut(self._rng, self._data)


def by_openai(guards: Guards, rng: random.Random, pieces: Pieces) -> tuple[str, bytes | None]:
    import openai

    import weir.openai

    server = httpx2.MockTransport(lambda _: httpx2.Response(200, stream=_Cut(rng, _events(pieces))))
    http = weir.openai.http_client(guards, transport=server)
    asked: Any = dict(ASKED)
    with openai.OpenAI(api_key="k", http_client=http) as sdk:
        if rng.random() < 0.5:
            choices = [one.choices[0] for one in sdk.chat.completions.create(**asked, stream=True)]
            text = "".join(one.delta.content or "" for one in choices)
        else:
            choices = sdk.chat.completions.create(**asked).choices
            text = choices[0].message.content
    return text, _raw(choices)


def _raw(choices: Sequence[Any]) -> bytes:
    """The bytes of the tokens in the choices' logprobs."""
    given = [one for choice in choices if choice.logprobs for one in choice.logprobs.content or ()]
    return b"".join(bytes(one.bytes or ()) for one in given)


def by_anthropic(guards: Guards, rng: random.Random, pieces: Pieces) -> tuple[str, bytes | None]:
    """As `by_openai`. A message has no logprobs."""
    import anthropic

    import weir.anthropic

    server = httpx2.MockTransport(lambda _: httpx2.Response(200, stream=_Cut(rng, _blocks(pieces))))
    http = weir.anthropic.http_client(guards, transport=server)
    asked: Any = {"model": "m", "max_tokens": 999, "messages": ASKED["messages"]}
    with anthropic.Anthropic(api_key="k", http_client=http) as sdk:
        if rng.random() < 0.5:
            with sdk.messages.stream(**asked) as stream:
                return "".join(stream.text_stream), None
        return "".join(one.text for one in sdk.messages.create(**asked).content if one.type == "text"), None


def _texts(pieces: Pieces) -> list[str]:
    return ["".join(one.text for one in tokens) for tokens in pieces]


@cache
def _runner() -> asyncio.Runner:
    return asyncio.Runner()


def _ran(work: Coroutine[Any, Any, T]) -> T:
    return _runner().run(work)


def _chat(body: bytes, *, streams: bool) -> tuple[str, bytes]:
    """The content of a chat as HTTP has it, and the bytes of its tokens."""
    lines = [line[6:] for line in body.splitlines() if line.startswith(b"data: {")] if streams else [body]
    choices = [choice for line in lines for choice in orjson.loads(line)["choices"]]
    text = "".join(choice["delta" if streams else "message"].get("content") or "" for choice in choices)
    given = [one for choice in choices for one in (choice.get("logprobs") or {}).get("content") or ()]
    return text, b"".join(bytes(one["bytes"] or ()) for one in given)


def by_vllm(guards: Guards, rng: random.Random, pieces: Pieces) -> tuple[str, bytes | None]:
    """The middleware of `vllm serve`, before an app that answers as vLLM does."""
    from weir.adapters.vllm import Guard

    async def vllm(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for data in _cut(rng, _events(pieces)):
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    streams, got = rng.random() < 0.5, bytearray()

    async def receive() -> Any:
        return {"type": "http.request", "body": orjson.dumps({**ASKED, "stream": streams})}

    async def send(message: Any) -> None:
        got.extend(message.get("body", b""))

    path = "/v1/chat/completions"
    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}
    _ran(Guard(vllm, guards)(scope, receive, send))
    return _chat(bytes(got), streams=streams)


def by_envoy(guards: Guards, rng: random.Random, pieces: Pieces) -> tuple[str, bytes | None]:
    """The external processor, asked as Envoy asks it."""
    from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

    from weir.adapters.envoy import Processor

    streams = rng.random() < 0.5
    path = "/v1/chat/completions"

    def headers(**fields: str) -> Any:
        given = [{"key": f":{name}", "raw_value": value.encode()} for name, value in fields.items()]
        return {"headers": {"headers": given}}

    async def messages() -> AsyncIterator[Any]:
        yield pb.ProcessingRequest(request_headers=headers(method="POST", path=path))
        body = orjson.dumps({**ASKED, "stream": streams})
        yield pb.ProcessingRequest(request_body={"body": body, "end_of_stream": True})
        yield pb.ProcessingRequest(response_headers=headers(status="200"))
        for data in _cut(rng, _events(pieces)):
            yield pb.ProcessingRequest(response_body={"body": data})
        yield pb.ProcessingRequest(response_body={"end_of_stream": True})

    async def asked() -> bytes:
        answers = [one async for one in Processor(guards).Process(messages(), None)]
        bodies = [one.response_body for one in answers if one.WhichOneof("response") == "response_body"]
        return b"".join(one.response.body_mutation.streamed_response.body for one in bodies)

    return _chat(_ran(asked()), streams=streams)


def by_litellm(guards: Guards, rng: random.Random, pieces: Pieces) -> tuple[str, bytes | None]:
    """The guardrail, called as LiteLLM's proxy calls it."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise it asks the network
    from litellm.types.utils import ModelResponse, ModelResponseStream

    guardrail = _guardrail()
    guardrail.guards = guards
    lines = [line[6:] for line in _events(pieces).splitlines() if line.startswith(b"data: {")]
    events = [orjson.loads(line) for line in lines]
    streams = rng.random() < 0.5
    data = {**ASKED, "litellm_call_id": "1", "metadata": {}, "stream": streams}

    async def chunks() -> AsyncIterator[Any]:
        for event in events:
            yield ModelResponseStream(**event)

    async def streamed() -> list[Any]:
        given = await guardrail.async_pre_call_hook(None, None, data, "acompletion")
        released = guardrail.async_post_call_streaming_iterator_hook(None, chunks(), given)
        return [choice async for chunk in released for choice in chunk.choices]

    async def whole() -> list[Any]:
        choices = [event["choices"][0] for event in events]
        logprobs = [one for choice in choices[:-1] for one in choice["logprobs"]["content"]]
        message = {"role": "assistant", "content": "".join(_texts(pieces))}
        choice = {"index": 0, "finish_reason": "stop", "message": message, "logprobs": {"content": logprobs}}
        given = await guardrail.async_pre_call_hook(None, None, data, "acompletion")
        answer = ModelResponse(choices=[choice])
        return [*(await guardrail.async_post_call_success_hook(given, None, answer)).choices]

    choices = _ran(streamed() if streams else whole())
    said = [(one.delta if streams else one.message).content or "" for one in choices]
    return "".join(said), _raw([one for one in choices if hasattr(one, "logprobs")])


@cache
def _guardrail() -> Any:
    import weir.litellm

    modes = ["pre_call", "post_call"]
    return weir.litellm.Guardrail(
        hooks=["benchmarks.leak_guards:Observer"], guardrail_name="weir", event_hook=modes, default_on=True
    )


def by_langchain(guards: Guards, rng: random.Random, pieces: Pieces) -> tuple[str, bytes | None]:
    """A guarded chat model. Its answers have no logprobs."""
    from weir.langchain import GuardedChatModel

    model = GuardedChatModel(model=_chat_model()(texts=_texts(pieces)), guards=guards)

    async def streamed() -> str:
        return "".join([chunk.text async for chunk in model.astream("Hi")])

    async def whole() -> str:
        text: str = (await model.ainvoke("Hi")).text
        return text

    match rng.randrange(4):
        case 0:
            return "".join(chunk.text for chunk in model.stream("Hi")), None
        case 1:
            return model.invoke("Hi").text, None
        case 2:
            return _ran(streamed()), None
    return _ran(whole()), None


@cache
def _chat_model() -> Any:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, AIMessageChunk
    from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

    class Says(BaseChatModel):  # type: ignore[misc]
        texts: list[str]

        @property
        def _llm_type(self) -> str:
            return "says"

        def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
            return ChatResult(generations=[ChatGeneration(message=AIMessage("".join(self.texts)))])

        def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> Any:
            for text in self.texts:
                yield ChatGenerationChunk(message=AIMessageChunk(text))

    return Says


def by_pydantic_ai(guards: Guards, rng: random.Random, pieces: Pieces) -> tuple[str, bytes | None]:
    """A guarded model. Its answers have no logprobs."""
    from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.models.function import FunctionModel

    from weir.pydantic_ai import GuardedModel

    async def says(_: Any, __: Any) -> AsyncIterator[str]:
        for text in _texts(pieces):
            yield text

    def whole(_: Any, __: Any) -> ModelResponse:
        return ModelResponse(parts=[TextPart("".join(_texts(pieces)))])

    model = GuardedModel(FunctionModel(whole, stream_function=says), guards)
    asked: Any = [ModelRequest.user_text_prompt("Hi")], None, ModelRequestParameters()
    streams = rng.random() < 0.5

    async def answer() -> ModelResponse:
        if not streams:
            return await model.request(*asked)
        async with model.request_stream(*asked) as response:
            async for _ in response:
                pass
            return response.get()

    return "".join(part.content for part in _ran(answer()).parts if isinstance(part, TextPart)), None


WRAPPERS: dict[str, tuple[str, Wrapper]] = {
    "OpenAI's SDK": ("openai", by_openai),
    "Anthropic's SDK": ("anthropic", by_anthropic),
    "LiteLLM's guardrail": ("litellm", by_litellm),
    "LangChain's chat model": ("langchain", by_langchain),
    "Pydantic AI's model": ("pydantic_ai", by_pydantic_ai),
    "vLLM's middleware": ("httpx2", by_vllm),
    "Envoy's processor": ("envoy", by_envoy),
}
"""By name: the package that the wrapper needs, and the wrapper."""
