"""The client against Weir itself: decisions are events of the answer, for its operator."""

import aiohttp
import pytest

from hooks import emit, redact
from proxy.cli.dialogue.client import ChatClient, ChatEvent, DecisionMade, Ended, NotOperatorError, Text
from tests.helpers import Script, ScriptedEngine, make_deltas
from tests.proxy.conftest import Client, Serve


async def events_of(server: Client, **headers: str) -> list[ChatEvent]:
    async with aiohttp.ClientSession(headers=headers) as session:
        client = ChatClient(session, server.url + "/v1", shows_decisions=True)
        messages = [{"role": "user", "content": "Hi"}]
        return [event async for event in client.ask({"model": "m", "messages": messages})]


async def test_a_decision_comes_before_what_follows_from_it(serve: Serve) -> None:
    hook = Script(lambda c: redact([(0, 3, "[x]")]) if c.pending.startswith("bad") else emit(c.pending))
    server = await serve(ScriptedEngine(lambda r: make_deltas(["It is ", "bad", "."])), hook)
    before, decision, *after = await events_of(server)
    assert before == Text("content", "It is ")
    assert isinstance(decision, DecisionMade)
    assert (decision.record["action"], decision.record["num_withheld"]) == ("redact", 3)
    assert after == [Text("content", "[x]"), Text("content", "."), Ended("stop", None)]


async def test_a_client_with_a_key_is_no_operator(serve: Serve) -> None:
    server = await serve(ScriptedEngine(lambda r: make_deltas(["a"])), api_key=["k"])
    with pytest.raises(NotOperatorError):
        await events_of(server, Authorization="Bearer k")
