"""Answers by the official SDKs' types, strictly, and streams as the SDKs' helpers put them together."""

from typing import Any

import anthropic
import openai
import orjson
import pytest
from anthropic.types import ErrorResponse, MessageTokensCount, ModelInfo
from openai.types import CreateEmbeddingResponse, Model, ModerationCreateResponse
from openai.types.shared import ErrorObject

from engine.protocol import GenerationRequest
from tests.clients.cases import (
    CASES,
    CHATS,
    CHOICES,
    ECHO,
    FAILURES,
    REFUSALS,
    Case,
    everything,
    guarded,
    starred,
)
from tests.clients.endpoints import ENDPOINT, JSONObject, sdks
from tests.clients.strict import valid
from tests.helpers import ScriptedEngine
from tests.proxy.conftest import Client, Events, Serve

USAGE: list[JSONObject] = [{"include_usage": True}, {"include_usage": True, "continuous_usage_stats": True}]


def each(cases: dict[str, Case]) -> Any:
    """Runs a test for each case, at each of its endpoints."""
    found = {f"{what}-{name}": (case, name) for what, case in cases.items() for name in case.endpoints}
    return pytest.mark.parametrize(("case", "name"), found.values(), ids=found)


async def serving(serve: Serve, case: Case) -> Client:
    return await serve(ScriptedEngine(case.script), *case.hooks())


def body_of(case: Case, name: str) -> JSONObject:
    return ENDPOINT[name].body | case.fields.get(name, {})


def valid_events(name: str, stream: Events) -> list[Any]:
    """The events, up to an `error` event of the chat's and the completion's shape."""
    events = [data for kind, data in stream.events if data != "[DONE]"]
    assert stream.status == 200
    if name in CHOICES:
        events = [data for kind, data in stream.events if kind is None and data != "[DONE]"]
    else:
        assert [kind for kind, data in stream.events if data != "[DONE]"] == [one["type"] for one in events]
    return [valid(ENDPOINT[name].event_type, _with_finish_reason(name, one)) for one in events]


def _with_finish_reason(name: str, event: JSONObject) -> JSONObject:
    """The SDK's type of a completion lacks the null of a stream's finish reason."""
    for choice in event["choices"] if name == "completions" else ():
        choice["finish_reason"] = choice["finish_reason"] or "stop"
    return event


@each(CASES)
async def test_an_answer_is_valid_and_its_stream_folds_to_it(serve: Serve, case: Case, name: str) -> None:
    client = await serving(serve, case)
    endpoint, body = ENDPOINT[name], body_of(case, name)
    status, answer, _ = await client.post(endpoint.path, body)
    assert status == 200, answer
    valid(endpoint.whole_type, answer)
    valid_events(name, await client.stream(endpoint.path, body))
    for options in USAGE if name in CHOICES else ():
        valid_events(name, await client.stream(endpoint.path, body | {"stream_options": options}))
    async with sdks(client.url) as made:
        whole = await endpoint.whole(made, body)
        usage = {"stream_options": {"include_usage": True}} if name in CHOICES else {}
        folded = await endpoint.folded(made, body | usage)
    assert comparable(folded) == comparable(whole)


@pytest.mark.parametrize("case", ["a guard's end within a call", "a call that is suppressed in part"])
@pytest.mark.parametrize("name", CHATS)
async def test_a_client_gets_no_part_of_a_call_that_a_guard_cut(serve: Serve, case: str, name: str) -> None:
    """Contract 3.20: the SDKs' helpers would complete its JSON."""
    client = await serving(serve, CASES[case])
    endpoint = ENDPOINT[name]
    async with sdks(client.url) as made:
        answers = [await endpoint.whole(made, endpoint.body), await endpoint.folded(made, endpoint.body)]
    for answer in answers:
        written = orjson.dumps({**answer, "tools": None})
        assert b'"name":"f"' in written
        assert b'"name":"g"' not in written
        assert b"rm -rf" not in written


IDENTITY = ("id", "call_id", "created", "created_at", "object")
NOT_FOLDED = ("stop_reason", "token_ids", "prompt_token_ids")
"""Fields of Weir in a choice. The SDK's helper knows the ones of the first chunk alone."""


def comparable(value: Any) -> Any:
    """Without ids, times and fields that only a helper adds. A null, and a text of no characters, is absent:
    a helper keeps the one that the first chunk has."""
    if not isinstance(value, dict):
        return [comparable(one) for one in value] if isinstance(value, list) else value
    ignored = IDENTITY
    if "finish_reason" in value:
        ignored += NOT_FOLDED
    if "function" in value:
        ignored += ("index",)  # the helper leaves a call its place in the list
    kept = {name: comparable(one) for name, one in value.items() if name not in ignored}
    return {k: v for k, v in kept.items() if v not in (None, "") and not k.startswith("parsed")}


@each({what: case for what, case in CASES.items() if set(case.endpoints) == set(CHOICES)})
async def test_fields_of_weir_in_a_stream_are_those_of_the_whole_answer(
    serve: Serve, case: Case, name: str
) -> None:
    client = await serving(serve, case)
    endpoint, body = ENDPOINT[name], body_of(case, name)
    _, whole, _ = await client.post(endpoint.path, body)
    stream = await client.stream(endpoint.path, body)
    for choice in whole["choices"]:
        parts = [one for data in stream.chunks for one in data["choices"] if one["index"] == choice["index"]]
        ids = [token_id for part in parts for token_id in part.get("token_ids", ())]
        assert ids == choice.get("token_ids", [])
        assert [part["stop_reason"] for part in parts if part.get("stop_reason") is not None] == [
            reason for reason in [choice["stop_reason"]] if reason is not None
        ]


@pytest.mark.parametrize("name", CHOICES)
async def test_an_answer_with_the_logprobs_of_its_prompt_is_valid(serve: Serve, name: str) -> None:
    """It cannot be streamed."""
    client = await serve(ScriptedEngine(ECHO))
    endpoint = ENDPOINT[name]
    status, answer, _ = await client.post(endpoint.path, endpoint.body | {"prompt_logprobs": 1})
    assert status == 200, answer
    valid(endpoint.whole_type, answer)
    told = answer if name == "chat" else answer["choices"][0]
    assert len(told["prompt_logprobs"]) == 2


@each(FAILURES)
async def test_a_failed_stream_is_valid_and_the_sdk_raises_its_error(
    serve: Serve, case: Case, name: str
) -> None:  # contract 4.2
    client = await serving(serve, case)
    endpoint, body = ENDPOINT[name], body_of(case, name)
    stream = await client.stream(endpoint.path, body)
    kind, error = stream.events[-1 if name == "messages" else -2]
    assert kind == "error"
    if name == "messages":
        valid(ErrorResponse, error)
        stream.events.pop()
    else:
        valid(ErrorObject, error["error"])
    assert valid_events(name, stream)
    async with sdks(client.url) as made:
        with pytest.raises((openai.APIError, anthropic.APIError)) as raised:
            await endpoint.folded(made, body)
    assert raised.value.message
    assert isinstance(raised.value.body, dict)


@each(REFUSALS)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_is_valid_and_the_sdk_raises_it(
    serve: Serve, case: Case, name: str, stream: bool
) -> None:
    client = await serving(serve, case)
    endpoint, body = ENDPOINT[name], body_of(case, name)
    status, error, headers = await client.post(endpoint.path, body | {"stream": stream})
    assert status >= 400
    if name == "messages":
        assert valid(ErrorResponse, error).request_id == headers["request-id"]
    else:
        assert list(error) == ["error"]
        valid(ErrorObject, error["error"])
    async with sdks(client.url) as made:
        with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as raised:
            await (endpoint.folded if stream else endpoint.whole)(made, body)
    assert raised.value.status_code == status


async def test_the_models_are_valid(serve: Serve) -> None:
    client = await serve(ScriptedEngine(everything), names=["m", "other/one"])
    async with sdks(client.url) as made:
        models = [model async for model in made.openai.models.list()]
        assert [valid(Model, model.to_dict()).id for model in models] == ["m", "other/one"]
        assert valid(Model, (await made.openai.models.retrieve("other/one")).to_dict()).id == "other/one"
        infos = [info async for info in made.anthropic.models.list()]
        assert [valid(ModelInfo, info.to_dict()).id for info in infos] == ["m", "other/one"]
        assert valid(ModelInfo, (await made.anthropic.models.retrieve("m")).to_dict()).id == "m"


async def test_moderations_are_valid(serve: Serve) -> None:
    client = await serve(ScriptedEngine(everything), *guarded(starred)(), moderations=True)
    async with sdks(client.url) as made:
        judged = await made.openai.moderations.create(input=["Tell me.", "Hi"])
    told = valid(ModerationCreateResponse, judged.to_dict())
    assert [one.flagged for one in told.results] == [True, False]


class Helpful(ScriptedEngine):
    """An engine that also counts tokens and embeds texts."""

    @property
    def tokenizer(self) -> Any:  # type: ignore[override]
        return self

    def encode_chat(self, request: GenerationRequest) -> list[int]:
        return [1, 2, 3]

    async def relay(self, request: GenerationRequest, path: str, fields: Any) -> bytes:
        vector = {"object": "embedding", "index": 0, "embedding": [0.25, -1.0]}
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return orjson.dumps({"object": "list", "model": "theirs", "data": [vector], "usage": usage})


async def test_counts_and_embeddings_are_valid(serve: Serve) -> None:
    client = await serve(Helpful(everything))
    async with sdks(client.url) as made:
        asked = {name: value for name, value in ENDPOINT["messages"].body.items() if name != "max_tokens"}
        counted = await made.anthropic.messages.count_tokens(**asked)
        assert valid(MessageTokensCount, counted.to_dict()).input_tokens == 3
        embedded = await made.openai.embeddings.create(model="m", input="Hi", encoding_format="float")
        assert valid(CreateEmbeddingResponse, embedded.to_dict()).data[0].embedding == [0.25, -1.0]
