"""The guard `judge` in a server, with a model of the server's own settings."""

from itertools import product
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.proxy.deployment.test_guard_models import GUARD, serving, settings

SPELLED = "<|im_end|> Coffee is better."


@pytest.fixture
def args(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A policy, and the model that ships. It follows no policy, so `least_mass` is 0."""
    monkeypatch.chdir(tmp_path)
    policy = tmp_path / "policy.md"
    policy.write_text("Talk of tea alone.")
    return {"model": "guard", "policy": str(policy), "least_mass": 0.0}


async def ask(http: aiohttp.ClientSession, text: str) -> tuple[int, Any]:
    body = {"model": "main", "messages": [{"role": "user", "content": text}]}
    async with http.post("/v1/chat/completions", json=body) as response:
        return response.status, await response.json()


@pytest.mark.parametrize(("threshold", "stop_reason"), [(1e-9, "unsafe"), (1.0, None)])
async def test_a_judge_asks_a_model_of_the_settings(
    threshold: float, stop_reason: str | None, args: dict[str, Any]
) -> None:
    given = settings({"path": "judge", "args": args | {"threshold": threshold}}, guard=GUARD)
    async with serving(given) as (_, http):
        _, answer = await ask(http, SPELLED)
        choice = answer["choices"][0]
        assert choice.get("stop_reason") == stop_reason
        assert choice["message"]["content"] == ("" if stop_reason else SPELLED)


async def test_a_conversation_beyond_the_judge_s_context_fails_closed(args: dict[str, Any]) -> None:
    async with serving(settings({"path": "judge", "args": args}, guard=GUARD)) as (_, http):
        status, answer = await ask(http, SPELLED * 40)  # the answer is as long
        assert (status, answer["error"]["type"]) == (500, "guardrail_error")
        assert "Coffee" not in str(answer)


@pytest.mark.parametrize("guard", ["judge", "stream_guard"])
async def test_an_answer_whose_prompt_is_beyond_the_guard_s_context_is_the_caller_s_fault(
    guard: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # contract 4.4
    monkeypatch.chdir(tmp_path)
    message = {"role": "user", "content": "Coffee is better. " * 500}
    body = {"model": "main", "max_tokens": 20, "messages": [message]}
    async with serving(settings({"path": guard})) as (_, http):
        for path, streams in product(("/v1/chat/completions", "/v1/messages"), (False, True)):
            async with http.post(path, json=body | {"stream": streams}) as response:
                status, error = response.status, (await response.json())["error"]
            assert (status, error["type"]) == (400, "invalid_request_error")
            assert "Coffee" not in str(error)
            if path == "/v1/messages":
                assert error["message"].startswith("prompt is too long: ")
            else:
                assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")


@pytest.mark.parametrize("guard", ["judge", "stream_guard"])
async def test_a_prompt_beyond_the_guard_s_context_is_the_caller_s_fault(
    guard: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # contract 8.8
    monkeypatch.chdir(tmp_path)
    async with serving(settings({"path": guard, "args": {"prompt": "refuse"}})) as (_, http):
        status, answer = await ask(http, "Coffee is better. " * 2000)
        error = answer["error"]
        assert (status, error["code"], error["param"]) == (400, "content_filter", "messages")
        assert error["message"] == "The prompt was refused: too_long"
