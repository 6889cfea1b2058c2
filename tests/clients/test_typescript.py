"""The official SDKs for TypeScript read every stream, and hold a conversation, as those for Python do."""

from typing import Any

import pytest

from tests.clients.agent import TURNS
from tests.clients.agents import AGENTS
from tests.clients.cases import CASES
from tests.clients.endpoints import ENDPOINT
from tests.clients.engines import upstream
from tests.clients.recorder import recording
from tests.clients.session import recorded
from tests.clients.test_sdk_types import body_of, comparable, serving
from tests.clients.test_sessions import anonymous
from tests.clients.typescript_sdks import hold_conversation, needs_typescript, run
from tests.proxy.conftest import Serve

pytestmark = needs_typescript


@pytest.mark.parametrize("api", AGENTS)
async def test_the_sdk_folds_each_stream_to_the_whole_answer(serve: Serve, api: str) -> None:
    wholes: list[Any] = []
    asked: list[Any] = []
    names = [name for name, case in CASES.items() if api in case.endpoints]
    for name in names:
        client = await serving(serve, CASES[name])
        body = body_of(CASES[name], api)
        wholes.append((await client.post(ENDPOINT[api].path, body))[1])
        usage = {"stream_options": {"include_usage": True}} if api == "chat" else {}
        asked.append({"api": api, "url": client.url, "body": body | usage})
    folded = await run("fold.mjs", asked)
    for name, whole, made in zip(names, wholes, folded, strict=True):
        assert known(made.get("answer", made)) == known(whole), name


def known(answer: Any) -> Any:
    """Without the fields of which the SDK's helper keeps the last piece alone, because it does not know them,
    and without the one that it adds."""
    for choice in answer.get("choices", ()):
        choice["message"].pop("reasoning_content", None)
    answer.pop("output_text", None)
    return comparable(answer)


@pytest.mark.parametrize("api", AGENTS)
async def test_an_agent_gets_the_answers_and_sends_what_is_recorded(api: str) -> None:
    async with upstream([]) as weir, recording(weir) as recorder:
        assert await hold_conversation(api, recorder.url) == list(TURNS)
    before = recorded()[f"{api}_typescript"]
    assert list(map(anonymous, recorder.requests)) == list(map(anonymous, before))
