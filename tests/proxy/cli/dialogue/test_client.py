"""The client reads a server's streams, and says why there is no answer."""

from collections.abc import Callable

import pytest

from proxy.cli.dialogue.client import (
    ChatClient,
    ChatError,
    DecisionMade,
    Ended,
    LostError,
    NotOperatorError,
    Text,
    TextHeld,
    ToolCall,
    error_message,
)
from tests.proxy.cli.dialogue.conftest import CUT, FakeServer, answer, delta, error, frame

Make = Callable[..., ChatClient]


async def events_of(client: ChatClient) -> list[object]:
    return [event async for event in client.ask({"model": "m", "messages": []})]


async def test_each_part_of_an_answer_is_an_event(client: Make, server: FakeServer) -> None:
    function = {"name": "look", "arguments": "{"}
    record = {"hook": "pii", "action": "redact", "held_seconds": 0.5}
    server.scripts = [
        [
            b": a comment\n\n",
            delta(role="assistant", content=""),
            delta(reasoning_content="hm"),
            frame({"output_index": 0, "channel": "content", "num_held": 3, "hook": "pii"}, "weir.held"),
            frame(record, "weir.decision"),
            frame({**record, "output_index": 1}, "weir.decision"),
            frame({"output_index": 1, "channel": "content", "num_held": 3, "hook": "pii"}, "weir.held"),
            delta(content="Hi"),
            delta(tool_calls=[{"index": 0, "id": "c1", "function": function}]),
            frame({"choices": [{"index": 1, "delta": {"content": "other"}}]}),
            delta("length", "why"),
            frame({"choices": [], "usage": {}}),
            b"data: [DONE]\n\n",
        ]
    ]
    assert await events_of(client(shows_decisions=True)) == [
        Text("reasoning", "hm"),
        TextHeld("pii", 3),
        DecisionMade(record),
        Text("content", "Hi"),
        ToolCall(0, "c1", "look", "{"),
        Ended("length", "why"),
    ]
    assert server.headers[0]["X-Weir-Decisions"] == "true"


async def test_decisions_are_asked_for_only_if_wanted(client: Make, server: FakeServer) -> None:
    await events_of(client())
    assert "X-Weir-Decisions" not in server.headers[0]


@pytest.mark.parametrize(
    ("script", "kind", "says"),
    [
        ((400, "no"), ChatError, "400: no"),
        ((503, "stopping"), LostError, "503: stopping"),
        ((403, "not you"), ChatError, "403: not you"),
        ([delta(content="a"), frame(error("a guard failed"))], ChatError, "a guard failed"),
        ([delta(content="a"), CUT], LostError, "the answer was cut short"),
        ([delta(content="a")], LostError, "the answer was cut short"),
        ([b"data: [1]\n\n"], ChatError, "not understood"),
        ([b"data: nonsense\n\n"], ChatError, "not understood"),
        ([frame(None, "weir.decision")], ChatError, "not understood"),
        ([frame({"held_seconds": "long"}, "weir.decision")], ChatError, "not understood"),
    ],
    ids=range(10),
)
async def test_no_answer_is_an_error_that_says_why(
    client: Make, server: FakeServer, script: object, kind: type[ChatError], says: str
) -> None:
    server.scripts = [script]
    with pytest.raises(ChatError, match=says) as raised:
        await events_of(client())
    assert type(raised.value) is kind


async def test_a_server_may_keep_decisions_to_its_operator(client: Make, server: FakeServer) -> None:
    server.scripts = [(403, "X-Weir-Decisions"), answer("a")]
    with pytest.raises(NotOperatorError):
        await events_of(client(shows_decisions=True))


async def test_another_refusal_is_not_taken_for_one_of_decisions(client: Make, server: FakeServer) -> None:
    server.scripts = [(403, "The operator cancelled this request.")]
    with pytest.raises(ChatError, match="403: The operator cancelled") as raised:
        await events_of(client(shows_decisions=True))
    assert type(raised.value) is ChatError


async def test_models_are_listed(client: Make) -> None:
    assert await client().models() == ["first", "second"]


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"error": "text"}', b"[]"])
def test_an_error_without_a_message_has_a_general_one(body: bytes) -> None:
    assert error_message(body) == "no reason given"
