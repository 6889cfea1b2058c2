"""Recorded sessions of agents have the same result with each engine, and in each API."""

import re
from dataclasses import replace
from typing import Any

import pytest

from tests.clients.agent import MODES, TURNS, Turn
from tests.clients.agents import AGENTS
from tests.clients.endpoints import sdks
from tests.clients.engines import ENGINES, upstream
from tests.clients.recorder import recording
from tests.clients.session import Request, recorded
from tests.helpers import until


def test_every_sdk_is_recorded_in_every_mode() -> None:
    sessions = recorded()
    assert {name.partition("_")[0] for name in sessions} == set(AGENTS)
    for requests in sessions.values():
        assert [request.leaves for request in requests] == [mode == "leave" for mode in MODES]


def _case(engine: str, guarding: str) -> Any:
    """Without a guard, a relayed session shows little that the same session with one does not."""
    marks = [pytest.mark.slow] if guarding == "plain" and engine not in ("local", "vllm") else []
    if engine == "vllm":
        marks += [pytest.mark.vllm, pytest.mark.filterwarnings("default")]
    return pytest.param(
        engine, [] if guarding == "plain" else ["pii"], id=f"{engine}-{guarding}", marks=marks
    )


@pytest.mark.parametrize(
    ("engine", "hooks"), [_case(engine, guarding) for engine in ENGINES for guarding in ("plain", "guarded")]
)
async def test_a_session_has_the_same_result(engine: str, hooks: list[str]) -> None:
    """With a guard, an address in a call's arguments is redacted, whichever engine called."""
    sessions = recorded()
    expected = [_redacted(turn) for turn in TURNS] if hooks else list(TURNS)
    if engine == "replay":  # nothing shows how the prompt ended, so what has no marker is reasoning
        expected = [turn if turn.reasoning or turn.calls else _unmarked(turn) for turn in expected]
    async with ENGINES[engine](hooks) as weir:
        answers = await weir.replay(list(sessions.values()))
        assert dict(zip(sessions, answers, strict=True)) == dict.fromkeys(sessions, expected)
        await until(lambda: not any(stats.num_running + stats.num_waiting for stats in weir.stats))
        assert {stats.aborted_total for stats in weir.stats} == {len(sessions)}, "the clients that left"


def _unmarked(turn: Turn) -> Turn:
    return replace(turn, text="", reasoning=turn.text)


def _redacted(turn: Turn) -> Turn:
    calls: Any = [
        (name, {key: value if "@" not in value else "[EMAIL_ADDRESS]" for key, value in arguments.items()})
        for name, arguments in turn.calls
    ]
    return replace(turn, calls=tuple(calls))


@pytest.mark.parametrize("name", AGENTS)
async def test_an_agent_sends_what_is_recorded(name: str) -> None:
    """`python -m tests.clients.record` records what a new version of an SDK sends."""
    async with upstream([]) as weir, recording(weir) as recorder, sdks(recorder.url) as made:
        assert await AGENTS[name](made) == list(TURNS)
    assert list(map(anonymous, recorder.requests)) == list(map(anonymous, recorded()[f"{name}_python"]))


def anonymous(request: Request) -> Request:
    """Without the answers' ids and reasoning, and without the version of the SDK. (The helper of OpenAI's SDK
    for TypeScript repeats the last piece of a chat's reasoning, and pieces differ.)"""
    body = re.sub(r"\b(call|fc|msg|resp|rs|toolu)([_-])[0-9a-f]{32}\b", r"\1\2", request.body)
    body = re.sub(r'"reasoning_content":"[^"]*"', "", body)
    return replace(request, body=body, headers={**request.headers, "user-agent": ""})
