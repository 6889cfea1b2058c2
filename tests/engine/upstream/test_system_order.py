"""An upstream that refuses more than one system message is asked once more, with these folded."""

from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest
from aiohttp import web

from engine.protocol import EngineError, RequestError
from engine.upstream.engine import UpstreamEngine
from engine.upstream.messages.engine import MessagesEngine
from engine.upstream.openai.engine import OpenAIEngine
from engine.upstream.system_order import order_fault
from tests.engine.upstream.conftest import messages_api, vllm
from tests.engine.upstream.openai.asked import chat

SYSTEM = {"role": "system", "content": "Be brief."}
HI = {"role": "user", "content": "Hi"}
REMINDER = {"role": "system", "content": "Be kind."}
ASKED = chat(messages=(SYSTEM, HI, REMINDER))
FOLDED = [{"role": "system", "content": "Be brief.\n\nBe kind."}, HI]
REFUSALS = [
    (400, "System message must be at the beginning."),
    (500, "Jinja Exception: System message must be at the beginning."),
    (400, "After the optional system message, conversation roles must alternate user/assistant/user/..."),
    (400, "Unexpected role 'system' after role 'user'"),
    (400, "1 validation error: messages.1.role: Input should be 'user' or 'assistant'"),
    (422, "Only the first message can be a system message."),
]


def refusing(status: int, words: str, answered: Any = vllm) -> Callable[[dict[str, Any]], Any]:
    """Answers a chat that has no system message but the first."""

    def script(body: dict[str, Any]) -> Any:
        if any(one["role"] == "system" for one in body["messages"][1:]):
            return web.json_response({"error": {"message": words}}, status=status)
        return answered(body)

    return script


async def ask(engine: UpstreamEngine, request: Any = ASKED) -> str:
    async with aclosing(engine.generate(request)) as deltas:
        return "".join([delta.text async for delta in deltas])


@pytest.mark.parametrize(("status", "words"), REFUSALS)
async def test_it_is_asked_again_once_and_then_known(upstream: Any, status: int, words: str) -> None:
    upstream.script = refusing(status, words)
    engine = OpenAIEngine(upstream.url)
    await engine.start()
    try:
        for num_asked in (2, 3):
            assert await ask(engine)
            assert len(upstream.bodies) == num_asked
            assert upstream.bodies[-1]["messages"] == FOLDED
        other = chat(messages=ASKED.messages, model="other")
        await ask(engine, other)
        assert len(upstream.bodies) == 5, "another model may take them"
    finally:
        await engine.aclose()


async def test_an_upstream_of_the_messages_api_gets_one_system_prompt(upstream: Any) -> None:
    upstream.script = lambda body: (
        web.json_response({"error": {"message": 'messages: Unexpected role "system".'}}, status=400)
        if any(turn["role"] == "system" for turn in body["messages"])
        else messages_api(body)
    )
    engine = MessagesEngine(upstream.url)
    await engine.start()
    try:
        assert await ask(engine)
        text = {"type": "text", "text": "Be brief.\n\nBe kind."}
        assert upstream.bodies[-1]["system"] == [text]
        own = {"system": "Be brief.", "messages": [HI, REMINDER]}
        own["messages"][1] = {**REMINDER, "content": [{"type": "text", "text": "Be kind."}]}
        await ask(engine, chat(messages=ASKED.messages, endpoint="messages", caller_body=own))
        assert [block["text"] for block in upstream.bodies[-1]["system"]] == ["Be brief.", "Be kind."]
        assert upstream.bodies[-1]["messages"] == [HI]
    finally:
        await engine.aclose()


@pytest.mark.parametrize(
    ("choice", "script", "error", "num_asked"),
    [
        ("keep", refusing(400, "System message must be at the beginning."), RequestError, 1),
        ("auto", refusing(400, "max_tokens is too large."), RequestError, 1),
        ("auto", refusing(500, "The GPU is gone."), EngineError, 1),
        (
            "auto",
            lambda body: web.json_response({"error": "System message must be first."}, status=400),
            RequestError,
            4,
        ),
        ("fold", refusing(400, "never"), None, 2),
    ],
)
async def test_what_is_asked_at_most(
    upstream: Any, choice: Any, script: Any, error: Any, num_asked: int
) -> None:
    """The fourth refuses any chat: nothing is learned from it, and each request is tried in both forms."""
    upstream.script = script
    engine = OpenAIEngine(upstream.url, system_messages=choice)
    await engine.start()
    try:
        for _ in range(2):
            if error is None:
                assert await ask(engine)
                continue
            with pytest.raises(error):
                await ask(engine)
            if num_asked == 1:
                break
        assert len(upstream.bodies) == num_asked
    finally:
        await engine.aclose()


@pytest.mark.parametrize(
    ("status", "body"),
    [(400, b"max_tokens is too large"), (404, b"System message must be first"), (400, b""), (500, b"\xff")],
)
def test_other_errors_are_none_of_the_order(status: int, body: bytes) -> None:
    assert order_fault(status, body) is None
