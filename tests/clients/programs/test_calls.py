"""A step becomes a call of whatever tool a program offers, and its text arrives as it is."""

import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.clients.programs.calls import Ask, Edit, Read, Run, Step, Write, call_of, command_of

TEXT = "a 'b' \"c\" $HOME `ls` \\ %s ä\n\tend\n"


def schema(*names: str, **others: Any) -> dict[str, Any]:
    return {"properties": {name: {"type": "string"} for name in names} | others, "required": list(names)}


@pytest.mark.parametrize(
    ("step", "tools", "call"),
    [
        (Read("n"), {"Read": schema("file_path")}, ("Read", {"file_path": "/w/n"})),
        (Read("n"), {"view": schema("path")}, ("view", {"path": "/w/n"})),
        (Run("ls"), {"bash": schema("command", "description")}, ("bash", {"command": "ls"})),
        (
            Run("ls"),
            {"shell": schema(command={"type": "array"})},
            ("shell", {"command": ["bash", "-c", "ls"]}),
        ),
        (Ask("Rome"), {"mcp__weather__lookup": schema("city")}, ("mcp__weather__lookup", {"city": "Rome"})),
        (
            Edit("n", "a", "b"),
            {"edit": schema("path", edits={"type": "array", "items": schema("oldText", "newText")})},
            ("edit", {"path": "/w/n", "edits": [{"oldText": "a", "newText": "b"}]}),
        ),
    ],
)
def test_a_step_is_a_call_of_the_tool_that_does_it(
    step: Step, tools: dict[str, Any], call: tuple[str, dict[str, Any]]
) -> None:
    made = call_of(step, "/w", tools)
    assert made is not None
    name, arguments = made[0], orjson.loads(made[1])
    arguments.pop("description", None)
    assert (name, arguments) == call


def test_no_tool_does_no_step() -> None:
    assert call_of(Ask("Rome"), "/w", {"bash": schema("command")}) is None


def test_a_shell_writes_and_changes_text_as_it_is(tmp_path: Path) -> None:
    for step in (Write("n", TEXT), Edit("n", "'b'", '`x` "y"')):
        subprocess.run(["bash", "-c", command_of(step, str(tmp_path))], check=True)
    assert (tmp_path / "n").read_text() == TEXT.replace("'b'", '`x` "y"')
