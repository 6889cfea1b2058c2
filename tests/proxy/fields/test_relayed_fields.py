"""The fields of a request that an upstream gets: those that the table lets through, those that the operator
names, and one limit of tokens, whatever the client calls it."""

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from engine.protocol.fields.names import LENGTH_LIMITS
from engine.protocol.fields.table import FIELDS, Relay
from engine.upstream.openai.engine import OpenAIEngine
from engine.upstream.openai.options import OpenAIOptions
from hooks import prompt_texts
from proxy.deployment.build import build
from proxy.http.app import Server
from proxy.settings.serve import ServeSettings, load_settings
from proxy.wire.openai.endpoint_fields import HEADER
from tests.engine.upstream.conftest import FakeUpstream, fake_upstream, vllm
from tests.helpers import make_request
from tests.proxy.conftest import Client, Serve

PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
MESSAGES = [{"role": "user", "content": "Hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "chat": {"messages": MESSAGES},
    "completions": {"prompt": "Hi"},
    "responses": {"input": "Hi"},
    "messages": {"messages": MESSAGES, "max_tokens": 9},
}
STEERING: dict[str, Any] = {
    "kv_transfer_params": {"remote_host": "10.0.0.1"},
    "ec_transfer_params": {"remote_host": "10.0.0.1"},
    "disaggregated_params": {"ctx_info_endpoint": "10.0.0.1"},
    "bootstrap_host": "10.0.0.1",
    "bootstrap_port": 1,
    "bootstrap_room": 1,
    "routed_dp_rank": 1,
    "data_parallel_rank": 1,
    "rid": "another's",
    "request_id": "another's",
    "session_id": "another's",
    "session_params": {"id": "another's"},
    "conversation_params": {"conversation_id": "another's"},
    "lora": [{"id": 0, "scale": 1.0}],
    "lora_path": "another's",
    "lora_request": {"lora_path": "another's"},
    "id_slot": 1,
    "n_cmpl": 100,
    "nvext": {"backend_instance_id": 1},
    "extra_body": {"rid": "another's"},
    "vllm_xargs": {"kv_transfer_params": ["10.0.0.1"]},
    "custom_params": {"a": 1},
    "input_ids": [1, 2],
    "prompt_embeds": "AAAA",
    "unheard_of": 1,
}
"""Fields by which a client of some server chooses hosts, adapters, slots and sessions."""

RELAYED_PATHS: dict[str, dict[str, Any]] = {
    "/v1/embeddings": {"input": "a"},
    "/v1/rerank": {"query": "q", "documents": ["a"]},
    "/v1/score": {"text_1": "q", "text_2": "a"},
}


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with fake_upstream() as fake:
        fake.script = vllm
        yield fake


async def sent(
    client: Client, upstream: FakeUpstream, endpoint: str, fields: dict[str, Any], *, stream: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """The body that the upstream gets, and the fields that the answer's header names."""
    body = BODIES[endpoint] | {"model": "m", "stream": stream} | fields
    async with client.http.post(client.url + PATHS[endpoint], json=body) as response:
        assert response.status == 200, await response.text()
        await response.read()
        return upstream.bodies[-1], response.headers.get(HEADER, "").split(", ")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("endpoint", PATHS)
async def test_a_field_that_steers_an_upstream_stays_behind_and_is_named(
    serve: Serve, upstream: FakeUpstream, endpoint: str, stream: bool
) -> None:
    client = await serve(OpenAIEngine(upstream.url))
    plain, _ = await sent(client, upstream, endpoint, {}, stream=stream)
    body, named = await sent(client, upstream, endpoint, STEERING, stream=stream)
    assert body == plain
    assert set(named) == STEERING.keys()


async def test_an_upstream_gets_the_fields_of_sampling_that_servers_document(
    serve: Serve, upstream: FakeUpstream
) -> None:
    client = await serve(OpenAIEngine(upstream.url))
    fields = {name: 0.5 for name, field in FIELDS.items() if field.dialect in ("llama.cpp", "TensorRT-LLM")}
    known = {name: value for name, value in fields.items() if FIELDS[name].relay is Relay.BY_DEFAULT}
    assert {"mirostat", "dry_multiplier", "typical_p", "top_p_min"} <= known.keys()
    for endpoint in ("chat", "completions", "responses"):
        body, named = await sent(client, upstream, endpoint, known)
        assert body.items() >= known.items()
        assert named == [""]


@pytest.mark.parametrize("endpoint", ["chat", "completions", "responses"])
async def test_an_upstream_gets_the_fields_that_the_operator_names(
    serve: Serve, upstream: FakeUpstream, endpoint: str
) -> None:
    allowed = {name: STEERING[name] for name in ("kv_transfer_params", "rid", "unheard_of")}
    options = OpenAIOptions(relay_fields=tuple(allowed))
    client = await serve(OpenAIEngine(upstream.url, openai=options))
    body, named = await sent(client, upstream, endpoint, STEERING)
    assert body.items() >= allowed.items()
    assert set(named) == STEERING.keys() - allowed.keys()


SPELLINGS = [
    (endpoint, name)
    for endpoint in PATHS
    for name in LENGTH_LIMITS
    if (endpoint, name) != ("responses", "max_tokens")  # refused: it is called max_output_tokens here
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("endpoint", "name"), SPELLINGS)
async def test_every_name_of_the_limit_counts_as_the_limit(
    serve: Serve, upstream: FakeUpstream, endpoint: str, name: str, stream: bool
) -> None:
    client = await serve(OpenAIEngine(upstream.url))
    body, named = await sent(client, upstream, endpoint, {name: 3}, stream=stream)
    assert {field: body[field] for field in LENGTH_LIMITS if field in body} == {"max_tokens": 3}
    assert named == [""]


@pytest.mark.parametrize("endpoint", PATHS)
async def test_the_smallest_of_several_limits_holds(
    serve: Serve, upstream: FakeUpstream, endpoint: str
) -> None:
    client = await serve(OpenAIEngine(upstream.url))
    for fields in (
        {"n_predict": 3, "max_new_tokens": 4},
        {"n_predict": 4, "num_predict": 3, "max_length": -1},
    ):
        body, _ = await sent(client, upstream, endpoint, fields)
        assert body["max_tokens"] == 3


@pytest.mark.parametrize("value", [0, -2, 1.5, True, "3", [3]])
@pytest.mark.parametrize("endpoint", PATHS)
async def test_a_limit_that_is_no_number_of_tokens_is_refused_by_its_name(
    serve: Serve, upstream: FakeUpstream, endpoint: str, value: Any
) -> None:
    client = await serve(OpenAIEngine(upstream.url))
    body = BODIES[endpoint] | {"model": "m", "n_predict": value}
    status, answer, _ = await client.post(PATHS[endpoint], body)
    assert (status, "n_predict" in answer["error"]["message"]) == (400, True)
    assert not upstream.bodies


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("endpoint", PATHS)
async def test_a_policys_limit_binds_every_name_of_the_limit(
    serve: Serve, upstream: FakeUpstream, endpoint: str, stream: bool
) -> None:
    settings = ServeSettings(
        port=0,
        shutdown_timeout=0,
        models={"m": {"engine": "openai", "upstream": [f"{upstream.url}/v1"]}},
        policies={"short": {"limits": {"max_tokens": 5}}},
        default_policy="short",
    )
    server = Server(await build(settings), settings)
    client = await serve(OpenAIEngine(upstream.url))
    client.url = await server.start()
    needed = {"max_tokens": 6} if endpoint == "messages" else {}
    try:
        for own, name in SPELLINGS:
            if own == endpoint:
                body = BODIES[endpoint] | needed | {"model": "m", "stream": stream, name: 6}
                status, answer, _ = await client.post(PATHS[endpoint], body)
                assert status == 400
                assert f"{'max_tokens' if needed else name} must be at most 5" in answer["error"]["message"]
        needed = {"max_tokens": 5} if needed else {}
        for fields, expected in (({"n_predict": 3}, 3), ({"n_predict": -1}, 5), ({}, 5)):
            sent_body, _ = await sent(client, upstream, endpoint, needed | fields, stream=stream)
            assert (sent_body["max_tokens"], "n_predict" in sent_body) == (expected, False)
    finally:
        await server.stop()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("endpoint", PATHS)
@pytest.mark.parametrize("arguments", [{"truncation": True, "max_length": 9}, {"eos_token": " Project Blue"}])
async def test_no_argument_of_a_template_changes_the_text_that_an_output_continues(
    serve: Serve, upstream: FakeUpstream, arguments: dict[str, Any], endpoint: str, stream: bool
) -> None:  # contract 2.8
    client = await serve(OpenAIEngine(upstream.url))
    fields = {"chat_template_kwargs": arguments, "stream": stream}
    status, answer, _ = await client.post(PATHS[endpoint], BODIES[endpoint] | fields | {"model": "m"})
    assert (status, upstream.bodies) == (400, [])
    assert f"chat_template_kwargs.{next(iter(arguments))} is refused" in str(answer)
    harmless = {"enable_thinking": False, "truncation": None, "thinking_budget": 5}
    body, _ = await sent(client, upstream, endpoint, {"chat_template_kwargs": harmless}, stream=stream)
    assert body["chat_template_kwargs"] == harmless


@pytest.mark.parametrize("path", RELAYED_PATHS)
async def test_a_relayed_request_holds_no_field_that_steers_an_upstream(
    serve: Serve, upstream: FakeUpstream, path: str
) -> None:
    upstream.script = lambda body: web.json_response({"data": []})
    base = RELAYED_PATHS[path]
    fields = {"truncate_prompt_tokens": 3, "cache_salt": "s"}
    client = await serve(OpenAIEngine(upstream.url, openai=OpenAIOptions(relay_fields=("rid",))))
    status, _, headers = await client.post(path, base | fields | STEERING | {"model": "m"})
    assert status == 200
    assert upstream.bodies[-1] == base | fields | {"rid": STEERING["rid"], "model": "m"}
    assert set(headers[HEADER].split(", ")) == STEERING.keys() - {"rid"}


@pytest.mark.parametrize("path", RELAYED_PATHS)
async def test_a_relayed_request_holds_no_code(
    serve: Serve, upstream: FakeUpstream, path: str
) -> None:  # contract 7.3
    client = await serve(OpenAIEngine(upstream.url))
    template = {"chat_template": "{{ 1 }}"}
    for fields in (template, {"chat_template_kwargs": template}):
        status, answer, _ = await client.post(path, RELAYED_PATHS[path] | fields)
        assert (status, answer["error"]["param"].rpartition(".")[2]) == (400, "chat_template")
    assert not upstream.bodies


async def test_a_tokenized_prompt_holds_no_field_that_steers_an_upstream(
    serve: Serve, upstream: FakeUpstream
) -> None:
    upstream.script = lambda body: web.json_response({"tokens": [1], "count": 1})
    client = await serve(OpenAIEngine(upstream.url))
    body = {"prompt": "a", "model": "m", "add_special_tokens": False}
    status, _, headers = await client.post("/tokenize", body | STEERING)
    assert status == 200
    assert upstream.bodies[-1] == body
    assert set(headers[HEADER].split(", ")) == STEERING.keys()


async def test_the_log_names_ignored_fields_that_weir_knows(
    serve: Serve, upstream: FakeUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    client = await serve(OpenAIEngine(upstream.url))
    with caplog.at_level(logging.INFO, "weir.access"):
        await sent(client, upstream, "chat", {"rid": "x", "hunter2": 1, "bootstrap_host": "x"})
    assert "rid, other, bootstrap_host" in str([vars(record) for record in caplog.records])
    assert "hunter2" not in str([vars(record) for record in caplog.records])


@pytest.mark.parametrize("name", [name for name, field in FIELDS.items() if field.carries == "text"])
def test_hooks_on_prompts_see_every_field_that_carries_text(name: str) -> None:  # contract 8.6
    request = make_request(extra={name: {"a": "secret"}})
    assert any("secret" in text.text for text in prompt_texts(request))


def test_the_operator_names_fields_by_model() -> None:
    upstream = "http://127.0.0.1:1/v1"
    models = {"a": {"engine": "openai", "upstream": upstream, "relay_fields": ["rid"]}}
    assert ServeSettings(models=models).models["a"].parts.openai.relay_fields == ("rid",)
    options = ["--engine", "openai", "--upstream", upstream, "--relay-fields", "rid,id_slot"]
    assert load_settings(options).base_model.parts.openai.relay_fields == ("rid", "id_slot")


@pytest.mark.parametrize(
    ("engine", "name", "told"),
    [
        ("openai", "n_predict", "n_predict is a name for max_tokens"),
        ("openai", "chat_template", "no upstream gets chat_template"),
        ("echo", "rid", "relay_fields needs the engine 'openai'"),
    ],
)
def test_a_field_that_cannot_be_relayed_keeps_the_server_from_starting(
    engine: str, name: str, told: str
) -> None:
    options = ["--engine", engine, "--upstream", "http://127.0.0.1:1/v1", "--relay-fields", name]
    with pytest.raises(SystemExit, match=told):
        load_settings(options)
