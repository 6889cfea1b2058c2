"""Every body and every event is valid, strictly, by the types of OpenAI's own SDK."""

from typing import Any

import orjson
import pytest
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from engine.protocol import Delta, EngineError, Usage
from hooks import Chunk, Verdict, emit, terminate
from tests.helpers import Script, ScriptedEngine, make_deltas
from tests.proxy.conftest import CHAT, COMPLETION, Serve
from tests.proxy.response_helpers import ASK, LOGPROBS, TOOL, thinking

CHAT_TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
ALL = {"tools": [CHAT_TOOL], "logprobs": True, "top_logprobs": 1, "n": 2}
USAGE = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}


def two(request: Any) -> list[Delta]:
    """An answer with every channel, for two outputs."""
    both = [[*thinking(request)], make_deltas(["Hi"], index=1, finish=False)]
    end = Delta(index=1, finish_reason="length", usage=Usage(3, 9, 1, 3))
    return [*both[0], *both[1], end]


def ended(chunk: Chunk) -> Verdict:
    return terminate("harm") if chunk.channel == "content" else emit(chunk.pending)


HOOKS = [(), (Script(lambda c: emit(c.pending)),), (Script(ended),)]


@pytest.mark.parametrize("hooks", HOOKS)
@pytest.mark.parametrize(
    ("path", "body", "script", "whole", "part"),
    [
        ("/v1/chat/completions", {**CHAT, **ALL}, two, ChatCompletion, ChatCompletionChunk),
        ("/v1/chat/completions", CHAT, lambda r: make_deltas(["Hi"]), ChatCompletion, ChatCompletionChunk),
        (
            "/v1/completions",
            {**COMPLETION, "logprobs": 1},
            lambda r: make_deltas(["Hi"]),
            Completion,
            Completion,
        ),
        ("/v1/responses", {**ASK, **LOGPROBS, "tools": [TOOL]}, thinking, Response, ResponseStreamEvent),
    ],
)
async def test_an_answer_is_valid(
    serve: Serve, hooks: Any, path: str, body: dict[str, Any], script: Any, whole: Any, part: Any
) -> None:
    client = await serve(ScriptedEngine(script), *hooks)
    status, answer, _ = await client.post(path, body)
    assert status == 200, answer
    TypeAdapter(whole).validate_python(answer, strict=True)
    options = {} if path == "/v1/responses" else USAGE
    stream = await client.stream(path, {**body, **options})
    assert stream.status == 200
    for event in [data for _, data in stream.events if data != "[DONE]"]:
        if path == "/v1/completions":
            for choice in event["choices"]:
                choice["finish_reason"] = choice["finish_reason"] or "stop"  # the type lacks null
        TypeAdapter(part).validate_python(event, strict=True)


async def test_a_failed_response_is_valid_up_to_its_error(serve: Serve) -> None:
    script = [*make_deltas(["Hel"], finish=False), EngineError("The engine has failed.")]
    stream = await (await serve(ScriptedEngine(lambda r: script))).stream("/v1/responses", ASK)
    for name, event in stream.events[:-1]:
        TypeAdapter(ResponseStreamEvent).validate_python(event, strict=True)
        assert name == event["type"]


async def test_the_models_are_valid(serve: Serve) -> None:
    client = await serve(ScriptedEngine(two), names=["m", "other"])
    _, page = await client.get("/v1/models")
    for model in orjson.loads(page)["data"]:
        Model.model_validate(model, strict=True)
