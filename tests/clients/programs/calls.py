"""The call that an agent's model makes of the tools that a program offers: programs name the same tools in
many ways.

A step says what to do (`Read`, `Write`, `Edit`, `Run`, `Ask`). `call_of` finds a tool for it among the
offered ones, by the tool's name, and fills in the arguments by the names of the tool's own schema. A program
that has only a shell reads with `cat`, and one with `apply_patch` writes with patches.
"""

import base64
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson

JSONObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Read:
    path: str


@dataclass(frozen=True, slots=True)
class Write:
    path: str
    content: str


@dataclass(frozen=True, slots=True)
class Edit:
    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Run:
    command: str


@dataclass(frozen=True, slots=True)
class Ask:
    """A tool of the MCP server (`lookup_server.py`)."""

    city: str


Step = Read | Write | Edit | Run | Ask

TOOLS: Mapping[type, tuple[str, ...]] = {
    Read: ("read", "read_file", "view"),
    Write: ("write", "write_file", "create"),
    Edit: ("edit", "replace", "str_replace"),
    Run: ("bash", "run_shell_command", "exec_command", "shell_command", "shell", "local_shell"),
    Ask: ("lookup",),
}
"""The names of tools that do a step, in small letters. The name of an MCP server's tool ends with it."""

ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "path": ("path", "file_path", "filepath", "absolute_path"),
    "content": ("content", "contents", "file_text"),
    "old": ("old_string", "oldstring", "old_str", "oldtext"),
    "new": ("new_string", "newstring", "new_str", "newtext"),
    "command": ("command", "cmd"),
    "city": ("city",),
}
_MEANINGS = {name: meaning for meaning, names in ARGUMENTS.items() for name in names}


def call_of(step: Step, folder: str, tools: Mapping[str, JSONObject]) -> tuple[str, str] | None:
    """The name and the arguments, as JSON, of a call that does the step in the folder. `tools`: the schemas
    of the offered tools by name. None if no tool can do it."""
    values = {k: f"{folder}/{v}" if k == "path" else v for k, v in asdict(step).items()}
    if isinstance(step, Write | Edit) and "apply_patch" in tools:
        return "apply_patch", orjson.dumps({_only_argument(tools["apply_patch"]): patch_of(step)}).decode()
    name = _tool_for(type(step), tools)
    if name is None and not isinstance(step, Ask):
        name, values = _tool_for(Run, tools), {"command": command_of(step, folder)}
    return (name and (name, orjson.dumps(_filled_in(tools[name], values)).decode())) or None


def _tool_for(kind: type, tools: Mapping[str, JSONObject]) -> str | None:
    found = (name for wanted in TOOLS[kind] for name in tools if name.lower() == wanted)
    return next(found, None) or next((name for name in tools if name.endswith(TOOLS[kind])), None)


def _filled_in(schema: JSONObject, values: Mapping[str, str]) -> dict[str, Any]:
    filled: dict[str, Any] = {}
    for name, one in schema.get("properties", {}).items():
        meaning = _MEANINGS.get(name.lower())
        if meaning in values:
            is_list = one.get("type") == "array"
            filled[name] = ["bash", "-c", values[meaning]] if is_list else values[meaning]
        elif one.get("type") == "array" and "properties" in one.get("items", {}):
            filled[name] = [_filled_in(one["items"], values)]
        elif name in schema.get("required", ()) and one.get("type") == "string":
            filled[name] = one.get("enum", ["A step of the task"])[0]
        elif name in schema.get("required", ()) and one.get("type") == "boolean":
            filled[name] = False
    return filled


def _only_argument(schema: JSONObject) -> str:
    return next(iter(schema.get("properties", {})), "input")


def patch_of(step: Write | Edit) -> str:
    """In the form of the tool `apply_patch`."""
    if isinstance(step, Write):
        lines = [f"*** Add File: {step.path}", *(f"+{line}" for line in step.content.splitlines())]
    else:
        removed, added = (text.splitlines() for text in (step.old, step.new))
        lines = [f"*** Update File: {step.path}", "@@", *(f"-{line}" for line in removed)]
        lines += [f"+{line}" for line in added]
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def command_of(step: Step, folder: str) -> str:
    """A shell's command that does the step. Text goes through it as it is."""
    match step:
        case Read(path):
            return f"cat {folder}/{path}"
        case Write(path, content):
            return f"cat > {folder}/{path} <<'END_OF_FILE'\n{content}END_OF_FILE"
        case Edit(path, old, new):
            old, new = (base64.b64encode(text.encode()).decode() for text in (old, new))
            decoded = f"[base64.b64decode(t) for t in ('{old}', '{new}')]"
            code = f"import base64, pathlib; p = pathlib.Path('{folder}/{path}'); t = p.read_bytes()"
            return f'python3 -c "{code}; p.write_bytes(t.replace(*{decoded}))"'
        case Run(command):
            return f"cd {folder} && {command}"
        case Ask():
            raise ValueError("a shell has no lookup")
