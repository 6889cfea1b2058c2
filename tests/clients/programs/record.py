"""Sessions of Claude Code with a scripted model: the bodies that it sends to a server of the Messages API."""

import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.clients.programs.calls import Edit, Read, Run, Write, call_of
from tests.clients.programs.cases import DONE, KEY, MAIL, NOTES
from tests.clients.programs.programs import PROGRAMS
from tests.clients.programs.sandbox import ran
from tests.clients.programs.scripted_model import (
    FIRST,
    SECOND,
    STILL_HERE,
    ScriptedModel,
    Turn,
    pieces_of,
    serving_model,
)
from tests.engine.upstream.messages import asked

Body = dict[str, Any]


class MessagesModel(ScriptedModel):
    """As `ScriptedModel`, over the Messages API."""

    def app(self) -> web.Application:
        application = web.Application(client_max_size=1 << 26)
        application.router.add_post("/v1/messages", self._answer)
        return application

    async def _answer(self, http: web.Request) -> web.StreamResponse:
        body = await http.json()
        self.bodies.append(body)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(http)
        begin, *others = self._told(body)
        begin["message"]["id"] = f"msg_{len(self.bodies)}"  # Claude Code joins answers that have one id
        for event in (begin, *others):
            data = web.json_response(event).text
            await response.write(f"event: {event['type']}\ndata: {data}\n\n".encode())
        return response

    def _told(self, body: Body) -> list[asked.Event]:
        tools = {one["name"]: one.get("input_schema", {}) for one in body.get("tools") or ()}
        turn, blocks = self._turn(body), []
        if turn.reasoning:
            signed = asked.signature(0, "c2lnbmVk")
            *thinking, stop = asked.block(0, "thinking", *pieces_of(turn.reasoning))
            blocks.append([*thinking, signed, stop])
        if turn.text:
            blocks.append(asked.block(len(blocks), "text", *pieces_of(turn.text)))
        call = turn.step and call_of(turn.step, self.folder, tools)
        if not call:
            return asked.answer(*blocks)
        name, arguments = call
        call_id = f"toolu_{len(self.bodies)}"
        blocks.append(asked.block(len(blocks), "tool_use", *pieces_of(arguments), id=call_id, name=name))
        return asked.answer(*blocks, reason="tool_use")

    def _turn(self, body: Body) -> Turn:
        if not body.get("tools"):
            return Turn("A title")
        number = 0
        for message in body["messages"]:
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            for block in blocks:
                number += block["type"] == "tool_result"
                if SECOND in block.get("text", ""):
                    return Turn(STILL_HERE)
        return self.turns[min(number, len(self.turns) - 1)]


def recorded(num_sessions: int) -> Iterator[list[Body]]:
    """The bodies of each session, in order. A session is a task of several files, and a second prompt."""
    program = PROGRAMS["claude-code"]
    for number in range(num_sessions):
        with tempfile.TemporaryDirectory() as temporary:
            home, folder = (Path(temporary) / name for name in ("home", "work"))
            home.mkdir()
            folder.mkdir()
            (folder / "notes.txt").write_text(NOTES)
            with serving_model(MessagesModel(task(number), str(folder))) as model:
                for options, prompt in ((program.start, f"{FIRST}."), (program.resume, SECOND)):
                    ended = ran([*program.command, *options, prompt], home, folder, program.env(model.url))
                    expected = DONE if prompt != SECOND else STILL_HERE
                    if expected not in ended.output:
                        raise SystemExit(f"Claude Code did not do its task:\n{ended.output}")
                yield model.bodies


def task(number: int) -> Sequence[Turn]:
    """Two to six files are written, read, changed and run. Some have personal data and keys."""
    rng = random.Random(number)
    turns = [Turn("I read the notes first.", "The user has a task for me.", Read("notes.txt"))]
    for place in range(rng.randint(2, 6)):
        name = f"part_{place}.py"
        lines = [
            f"value_{line} = {rng.random()}  # {rng.choice(WORDS)}" for line in range(rng.randint(5, 80))
        ]
        first = lines[0]
        lines += rng.sample([f'OWNER = "{MAIL}"', f'TOKEN = "{KEY}"', 'PLACE = "here"'], 2)
        turns += [
            Turn(f"I write {name}.", f"It has {len(lines)} lines.", Write(name, "\n".join(lines) + "\n")),
            Turn(f"I read {name}.", "", Read(name)),
            Turn("", "A value differs.", Edit(name, first, f"{first}, changed")),
            Turn(f"I run {name}.", "It may have mistakes.", Run(f"python3 {name} && cat {name}")),
        ]
    return [*turns, Turn(DONE, "All is done.")]


WORDS = ("the heron", "the weir", "the gate", "the river", "the miller", "the flood")
