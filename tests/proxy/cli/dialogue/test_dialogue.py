"""Which messages a dialogue keeps, what its commands do, and how it goes on when a server is lost."""

import asyncio
import io
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.cli.dialogue import dialogue as dialogue_module
from proxy.cli.dialogue.client import ChatClient
from proxy.cli.dialogue.conversation import Conversation
from proxy.cli.dialogue.dialogue import Dialogue
from proxy.cli.dialogue.screen import Screen
from tests.proxy.cli.dialogue.conftest import CUT, WAIT, FakeServer, answer, delta, error, frame

Make = Callable[..., ChatClient]


class TypedLines:
    """What somebody types; an exception is a key such as Ctrl-C. Ends with Ctrl-D."""

    is_interactive = True

    def __init__(self, *typed: str | type[BaseException]) -> None:
        self.typed = list(typed)
        self.prompts: list[str] = []

    async def read(self, prompt: str) -> str:
        self.prompts.append(prompt)
        if not self.typed:
            raise EOFError
        text = self.typed.pop(0)
        if isinstance(text, str):
            return text
        raise text


@pytest.fixture
def talk(client: Make, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Awaitable[str]]:
    """Types lines. Returns what the screen showed."""
    monkeypatch.setattr(dialogue_module, "RETRY_DELAY", 0.001)

    async def run(*typed: Any, shows_decisions: bool = False, **options: Any) -> str:
        out = io.StringIO()
        screen = Screen(out, out)
        asking = client(shows_decisions=shows_decisions)
        conversation = Conversation(**options)
        lines = typed[0] if isinstance(typed[0], TypedLines) else TypedLines(*typed)
        await Dialogue(asking, screen, conversation, is_interactive=True).run(lines)
        return out.getvalue()

    return run


async def test_messages_and_answers_are_kept(talk: Any, server: FakeServer) -> None:
    server.scripts = [answer("A", "1"), answer("A2")]
    shown = await talk("q1", "", "q2", system="be brief", fields={"max_tokens": 5}, hooks=["strict"])
    assert shown == "A1\nA2\n"
    assert server.messages == [("system", "be brief"), ("user", "q1"), ("assistant", "A1"), ("user", "q2")]
    request = server.requests[0]
    assert (request["model"], request["max_tokens"], request["hooks"]) == ("first", 5, ["strict"])


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ((400, "The request was refused."), "[400: The request was refused.]"),
        ([delta(content="part"), frame(error("A guardrail failed"))], "[A guardrail failed]"),
        ([delta(content="I cannot."), delta("content_filter", "toxic")], "[content_filter: toxic]"),
        ([delta(content="part"), CUT], "part\n["),
    ],
    ids=["refused", "failed", "ended by a guard", "cut"],
)
async def test_a_refused_message_leaves_the_history(
    talk: Any, server: FakeServer, script: Any, says: str
) -> None:
    server.scripts = [answer("A1"), script, answer("A3")]
    shown = await talk("q1", "bad", "q3")
    assert says in shown
    assert "[the message leaves the history; /retry sends it again]" in shown
    assert server.messages == [("user", "q1"), ("assistant", "A1"), ("user", "q3")]


async def test_a_lost_server_is_asked_again(talk: Any, server: FakeServer) -> None:
    server.scripts = [(503, "stopping"), [CUT], answer("A")]
    shown = await talk("q")
    assert shown.startswith("[503: stopping; another attempt in 0.001 s (Ctrl-C: none)]\n[")
    assert shown.endswith("A\n")
    assert len(server.requests) == 3


async def test_ctrl_c_ends_the_answer_and_its_request(talk: Any, server: FakeServer) -> None:
    server.scripts = [[delta(content="part"), WAIT], [WAIT], answer("A3")]

    async def press_twice() -> None:
        for number in (1, 2):
            while len(server.requests) < number:
                await asyncio.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)
            await server.left.wait()
            server.left.clear()

    async with asyncio.TaskGroup() as group:
        group.create_task(press_twice())
        shown = await talk("q1", "q2", "q3")
    assert shown.count("[stopped]") == 2
    kept = [m for m in server.messages if m != ("assistant", "part") and m != ("user", "q1")]
    assert kept == [("user", "q3")]


async def test_two_ctrl_c_in_a_row_leave(talk: Any, server: FakeServer) -> None:
    lines = TypedLines(KeyboardInterrupt, "q", KeyboardInterrupt, KeyboardInterrupt, "never")
    assert await talk(lines) == "[Ctrl-C again leaves]\nok\n[Ctrl-C again leaves]\n"
    assert lines.typed == ["never"]


async def test_a_server_that_shows_no_decisions_is_asked_without(talk: Any, server: FakeServer) -> None:
    server.scripts = [(403, "X-Weir-Decisions"), answer("A")]
    shown = await talk("q", "q", shows_decisions=True)
    assert shown == "[the server shows decisions to its operator alone; they are not shown]\nA\nok\n"


async def test_results_of_tool_calls_are_asked_for(talk: Any, server: FakeServer) -> None:
    calls = [
        {"index": i, "id": f"c{i}", "type": "function", "function": {"name": name, "arguments": "{}"}}
        for i, name in enumerate(("look", "g\x1b]o"))
    ]
    server.scripts = [[delta(tool_calls=calls), delta("tool_calls")], answer("done")]
    lines = TypedLines("q", "seen", "gone")
    await talk(lines)
    assert lines.prompts == ["> ", "result of look> ", "result of g␛]o> ", "> "]
    *_, asked, first, second = server.requests[-1]["messages"]
    assert [call["function"]["name"] for call in asked["tool_calls"]] == ["look", "g\x1b]o"]
    assert (first["tool_call_id"], first["content"]) == ("c0", "seen")
    assert (second["tool_call_id"], second["content"]) == ("c1", "gone")


async def test_commands_change_the_next_request(talk: Any, server: FakeServer, tmp_path: Path) -> None:
    file = tmp_path / "saved.json"
    shown = await talk(
        "/model",
        "/model second",
        "/system be kind",
        "/hooks a, b",
        "/set seed 7",
        "/set stop END",
        "//literal",
        f"/save {file}",
        f"/save {file}",
        "/modle",
        "/help",
        "/exit",
        "never",
    )
    assert "[  first]\n[  second]\n" in shown
    request = server.requests[-1]
    assert (request["model"], request["hooks"]) == ("second", ["a", "b"])
    assert (request["seed"], request["stop"]) == (7, "END")
    assert server.messages == [("system", "be kind"), ("user", "/literal")]
    assert [m["role"] for m in json.loads(file.read_text())["messages"]] == ["system", "user", "assistant"]
    assert "saved.json: File exists]" in shown
    assert "[there is no command /modle; did you mean 'model'?]" in shown
    assert "[/save FILE   write" in shown
    assert len(server.requests) == 1


async def test_undo_retry_and_clear(talk: Any, server: FakeServer) -> None:
    server.scripts = [answer("A1"), answer("A2"), answer("A2b"), (400, "no"), answer("A3")]
    await talk("/retry", "q1", "q2", "/retry", "q3", "/retry", "/undo", "/clear", "q4")
    asked = [[m["content"] for m in request["messages"]] for request in server.requests]
    assert asked == [
        ["q1"],
        ["q1", "A1", "q2"],
        ["q1", "A1", "q2"],
        ["q1", "A1", "q2", "A2b", "q3"],
        ["q1", "A1", "q2", "A2b", "q3"],
        ["q4"],
    ]
