"""Logits processors that fail or are not available, as a client sees them (contract 7.3, 7.6, 7.7)."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from pydantic import ValidationError

from engine.local.engine import LocalEngine
from engine.protocol.demo import MODEL_DIR
from engine.protocol.options import EngineConfig, LogitsProcessorConfig
from engine.streams.recording import Recording
from engine.upstream.echo import EchoEngine
from engine.upstream.openai.engine import OpenAIEngine
from engine.upstream.replay import ReplayEngine
from proxy.deployment.deployment import Deployment
from proxy.deployment.directory import Directory, PolicyEntry
from proxy.http.app import Server
from proxy.settings.model import ModelSettings
from proxy.settings.policy import PolicySettings
from proxy.settings.serve import ServeSettings, load_settings
from tests.helpers import make_request, pipeline_of
from tests.proxy.conftest import CHAT, COMPLETION, Serve

FAILS = "tests.engine.sampling.logits_processors.processors.FailsAlone"
CHATS, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"


@pytest.fixture
async def engine() -> AsyncIterator[LocalEngine]:
    processors = (LogitsProcessorConfig("fails", FAILS),)
    engine = LocalEngine(EngineConfig(model=str(MODEL_DIR), num_threads=1, logits_processors=processors))
    yield engine
    await engine.aclose()


def failing(after: int) -> dict[str, Any]:
    return {"logits_processors": [{"name": "fails", "params": {"how": "raise", "after": after}}]}


ERROR = {
    "message": "A logits processor failed, so the request was ended.",
    "type": "guardrail_error",
    "param": None,
    "code": None,
}


async def test_a_processor_that_fails_is_a_500_or_one_error_event(serve: Serve, engine: LocalEngine) -> None:
    client = await serve(engine)
    for after in (0, 3):
        status, body, _ = await client.post(CHATS, {**CHAT, **failing(after)})
        assert (status, body) == (500, {"error": ERROR})
    stream = await client.stream(CHATS, {**CHAT, **failing(0)})
    assert (stream.status, stream.events) == (500, [(None, {"error": ERROR})])
    stream = await client.stream(COMPLETIONS, {**COMPLETION, **failing(3)})
    assert stream.status == 200
    assert stream.events[-2:] == [("error", {"error": ERROR}), (None, "[DONE]")]
    assert not any(choice["finish_reason"] for chunk in stream.chunks for choice in chunk["choices"])
    assert (await client.post(CHATS, {**CHAT, "max_tokens": 3}))[0] == 200


async def test_every_endpoint_accepts_logits_processors(serve: Serve, engine: LocalEngine) -> None:
    client = await serve(engine)
    for path, body in ((CHATS, CHAT), (COMPLETIONS, COMPLETION), (RESPONSES, {"input": "Hi"})):
        asked: dict[str, Any] = {**body, "logits_processors": [{"name": "fails", "params": {"how": ""}}]}
        assert (await client.post(path, asked))[0] == 200
        asked["logits_processors"].append({"name": "other", "params": {}})
        status, answer, _ = await client.post(path, asked)
        assert (status, answer["error"]["param"]) == (400, "logits_processors[1].name")


@pytest.mark.parametrize("kind", ["echo", "replay", "openai"])
async def test_an_engine_without_logits_refuses_logits_processors(
    kind: str, serve: Serve
) -> None:  # contract 7.7
    engine = {
        "echo": EchoEngine(),
        "replay": ReplayEngine([Recording(make_request(), ())]),
        "openai": OpenAIEngine("http://127.0.0.1:9/v1"),
    }[kind]
    client = await serve(engine)
    status, body, _ = await client.post(CHATS, {**CHAT, "logits_processors": [{"name": "likes"}]})
    assert (status, body["error"]["param"]) == (400, "logits_processors")


@pytest.mark.parametrize(
    "settings",
    [
        {"logits_processors": ["a=b.C"]},
        {"logits_processors": [{"name": "bad_words", "mandatory": True, "params": {"bad_words": ["x"]}}]},
        {"enable_test_logits_processor": True},
    ],
)
@pytest.mark.parametrize("engine", ["echo", "openai", "replay"])
def test_a_server_does_not_start_with_logits_processors_and_an_engine_without_logits(
    engine: str, settings: dict[str, Any]
) -> None:  # contract 7.7
    with pytest.raises(ValidationError, match="no logits of its own"):
        ServeSettings(engine=engine, upstream="http://x", recordings=Path(), **settings)


def test_processors_are_configured_on_the_command_line_and_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "weir.yaml"
    file.write_text(
        "logits_processors:\n  - bad_words\n  - mine=a.b:C\n"
        "  - {name: other, path: d.E, args: {x: 1}, mandatory: true, params: {y: [2]}}\n"
        "  - {name: watermark, args: {key: hush}}\n"
    )
    assert load_settings(["--config", str(file)]).base_model.local.logits_processors == (
        LogitsProcessorConfig("bad_words", "bad_words"),
        LogitsProcessorConfig("mine", "a.b:C"),
        LogitsProcessorConfig("other", "d.E", {"x": 1}, True, {"y": [2]}),
        LogitsProcessorConfig("watermark", "watermark", {"key": "hush"}),
    )
    arguments = ["--logits-processor", "bad_words", "--logits-processor", "mine=path/to/file.py:C"]
    assert load_settings(arguments).base_model.local.logits_processors == (
        LogitsProcessorConfig(name="bad_words", path="bad_words"),
        LogitsProcessorConfig(name="mine", path="path/to/file.py:C"),
    )
    file.write_text("logits_processors:\n  - {nome: bad_words}\n")
    with pytest.raises(SystemExit, match=r"logits_processors.0.name: Field required"):
        load_settings(["--config", str(file)])


async def serving_under(engine: LocalEngine, **policy: Any) -> tuple[Server, str]:
    """A server whose only policy has these settings, and its URL."""
    settings = ServeSettings(port=0, shutdown_timeout=0)
    model, only = ModelSettings().named(("m",)), PolicyEntry("p", PolicySettings(**policy))
    directory = Directory([model], [only], default_policy="p")
    server = Server(Deployment(directory, {"m": engine}, {"p": pipeline_of()}), settings)
    return server, await server.start()


async def test_a_policy_s_processors_run_for_every_request_and_no_request_names_them_again(
    engine: LocalEngine,
) -> None:
    fails = {"name": "fails", "params": {"how": "raise", "after": 0}}
    async with aiohttp.ClientSession() as http:
        server, url = await serving_under(engine, logits_processors=[fails])
        try:
            assert await _answer(http, url, CHAT) == (500, None)
            named = {**CHAT, "logits_processors": [{"name": "fails", "params": {"how": ""}}]}
            assert await _answer(http, url, named) == (400, "logits_processors[0].name")
            named = {**CHAT, "vllm_xargs": {"fails": {"how": ""}}}
            assert await _answer(http, url, named) == (400, "vllm_xargs.fails")
        finally:
            await server.stop()


async def test_a_server_does_not_start_with_wrong_parameters_of_a_policy(engine: LocalEngine) -> None:
    fails = {"name": "fails", "params": {"hov": "raise"}}
    with pytest.raises(
        ValueError, match=r"^policies.p: with the model 'm': .*'fails': params.hov: unknown parameter"
    ):
        await serving_under(engine, logits_processors=[fails])


async def test_a_request_names_only_processors_that_its_policy_allows(engine: LocalEngine) -> None:
    named = {"logits_processors": [{"name": "fails", "params": {"how": ""}}]}
    async with aiohttp.ClientSession() as http:
        server, url = await serving_under(engine, allowed_logits_processors=["other"])
        try:
            assert await _answer(http, url, {**CHAT, "max_tokens": 2}) == (200, None)
            assert await _answer(http, url, {**CHAT, **named}) == (400, "logits_processors[0].name")
            for field in ({"vllm_xargs": {"how": ""}}, {"custom_params": {"fails": {"how": ""}}}):
                assert await _answer(http, url, {**CHAT, **field}) == (400, next(iter(field)))
            given = {**CHAT, "thinking_token_budget": 3}
            assert await _answer(http, url, given) == (400, "thinking_token_budget")
        finally:
            await server.stop()


async def _answer(http: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> tuple[int, str | None]:
    """The status, and the field that an error names."""
    async with http.post(url + CHATS, json=body) as response:
        return response.status, (await response.json()).get("error", {}).get("param")
