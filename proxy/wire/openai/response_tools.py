"""The tools of a response: the kinds that the API has, each as the functions of a chat that stand for it.

Engines know functions alone. A function of a namespace has the namespace in its name, the text of a custom
tool is a function's one argument, and `local_shell` is a function with the fields of the API's command. Tools
that OpenAI's own servers run, and kinds that are not known, are left out.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import compress
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Discriminator, Field, Tag

from engine.protocol import RequestError
from engine.protocol.call_arguments import object_of
from engine.protocol.characters import whole_characters
from proxy.wire.openai.answer import JSONObject
from proxy.wire.openai.endpoint_fields import RequestObject
from proxy.wire.openai.other_tools import OTHER, Other, OtherTool, functions_of

CUSTOM_ARGUMENT = "input"
"""The argument of a function that stands for a custom tool."""
LOCAL_SHELL = "local_shell"
"""The tool's type, and the name of the function that stands for it."""
TOOL_SEARCH = "tool_search"
"""As `LOCAL_SHELL`."""

_MAX_NAME = 64
"""Characters of a function's name, in OpenAI's API."""
_NOT_IN_CHATS = {"type", "async", "allowed_callers", "defer_loading", "output_schema"}
"""Fields of a function that a chat does not have."""
_CUT = re.compile(
    rf'\s*\{{\s*"{CUSTOM_ARGUMENT}"\s*:\s*"((?:[^"\\]|\\u[0-9a-fA-F]{{4}}|\\["\\/bfnrt])*)(?:\\u?[0-9a-fA-F]{{0,3}})?'
)
"""Arguments of a custom tool that end within its text, perhaps within an escape."""
_SHELL_PARAMETERS = {
    "type": "object",
    "properties": {
        "command": {
            "type": "array",
            "items": {"type": "string"},
            "description": "The program, and its arguments",
        },
        "env": {"type": "object", "additionalProperties": {"type": "string"}},
        "timeout_ms": {"type": "integer"},
        "working_directory": {"type": "string"},
        "user": {"type": "string"},
    },
    "required": ["command"],
}


class Callee(NamedTuple):
    """A tool that the model may call, as the API names it."""

    kind: Literal["function", "custom", "local_shell", "tool_search"]
    name: str
    namespace: str | None = None


Entry = tuple[Callee, JSONObject]
"""A tool, and the fields of the function that stands for it."""


class FunctionTool(RequestObject):
    """A function that the model may call."""

    type: Literal["function"]
    name: Annotated[str, Field(min_length=1)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def entries(self, namespace: str | None = None) -> Iterator[Entry]:
        fields = self.model_dump(exclude=_NOT_IN_CHATS, exclude_none=True)
        yield Callee("function", self.name, namespace), fields


class CustomTool(RequestObject):
    """A tool that is called with a text."""

    type: Literal["custom"]
    name: Annotated[str, Field(min_length=1)]
    description: str | None = None
    format: dict[str, Any] | None = None

    def entries(self, namespace: str | None = None) -> Iterator[Entry]:
        argument: JSONObject = {"type": "string"}
        match self.format:
            case {"type": "grammar", "syntax": str(syntax), "definition": str(definition)}:
                argument["description"] = f"A text that follows this {syntax} grammar:\n{definition}"
        parameters = {
            "type": "object",
            "properties": {CUSTOM_ARGUMENT: argument},
            "required": [CUSTOM_ARGUMENT],
            "additionalProperties": False,
        }
        described = {} if self.description is None else {"description": self.description}
        yield Callee("custom", self.name, namespace), {**described, "parameters": parameters}


class LocalShellTool(RequestObject):
    """The client runs the commands of the model."""

    type: Literal["local_shell"]

    def entries(self, namespace: str | None = None) -> Iterator[Entry]:
        fields = {"description": "Runs a command on the user's machine.", "parameters": _SHELL_PARAMETERS}
        yield Callee("local_shell", LOCAL_SHELL), fields


class ToolSearchTool(RequestObject):
    """The client finds tools that the model does not have yet."""

    type: Literal["tool_search"]
    execution: Literal["client"]
    description: str | None = None
    parameters: dict[str, Any] | None = None

    def entries(self, namespace: str | None = None) -> Iterator[Entry]:
        fields = self.model_dump(include={"description", "parameters"}, exclude_none=True)
        yield Callee("tool_search", TOOL_SEARCH), fields


def _by_type(*known: str) -> Discriminator:
    """Tells the classes of tools apart. The space in a tag keeps it out of the field's name in an error."""

    def tag(tool: Any) -> str:
        fields = tool if isinstance(tool, Mapping) else vars(tool) if isinstance(tool, RequestObject) else {}
        kind = fields.get("type", "function")
        # Without the client, a search is one by OpenAI's servers.
        is_known = kind in known and (kind != TOOL_SEARCH or fields.get("execution") == "client")
        return f"a {kind}" if is_known else OTHER

    return Discriminator(tag)


Named = Annotated[FunctionTool, Tag("a function")] | Annotated[CustomTool, Tag("a custom")]
InNamespace = Annotated[Named | Other, _by_type("function", "custom")]


class NamespaceTool(RequestObject):
    """Tools that share a namespace, such as those of one MCP server."""

    type: Literal["namespace"]
    name: Annotated[str, Field(min_length=1)]
    description: str | None = None
    tools: list[InNamespace]

    def entries(self) -> Iterator[Entry]:
        for tool in self.tools:
            if not isinstance(tool, OtherTool):
                yield from tool.entries(self.name)

    def without_others(self) -> "NamespaceTool":
        return self.model_copy(update={"tools": functions_of(self.tools)})


Tool = Annotated[
    Named
    | Annotated[LocalShellTool, Tag("a local_shell")]
    | Annotated[NamespaceTool, Tag("a namespace")]
    | Annotated[ToolSearchTool, Tag("a tool_search")]
    | Other,
    _by_type("function", "custom", "local_shell", "namespace", "tool_search"),
]


def shown(tools: Iterable[Tool]) -> list[JSONObject]:
    """The tools as an answer has them: without those that are left out."""
    return [
        (tool.without_others() if isinstance(tool, NamespaceTool) else tool).model_dump()
        for tool in functions_of(tools)
    ]


class Toolbox:
    """The tools of one request. Raises `RequestError` if two tools would have one name."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self.chat: list[JSONObject] = []
        """The functions that an engine gets."""
        self.places: list[int] = []
        """The index of the tool, among all, that each function of `chat` stands for."""
        self.left_out: list[OtherTool] = []
        self._callees: dict[str, Callee] = {}
        """By the name of the function."""
        self._names: dict[tuple[Any, Any, Any], str] = {}
        """The first function's name, by the kind and the name of a tool, and by its namespace or None."""
        for place, tool in enumerate(tools):
            self._add(tool, place)

    def _add(self, tool: Tool, place: int) -> None:
        inner = tool.tools if isinstance(tool, NamespaceTool) else [tool]
        self.left_out += [one for one in inner if isinstance(one, OtherTool)]
        if isinstance(tool, OtherTool):
            return
        for callee, fields in tool.entries():
            name = chat_name(callee.name, callee.namespace)
            if self._callees.setdefault(name, callee) != callee:
                raise RequestError(f"tools: two tools have the name {name}.", param="tools")
            for namespace in (callee.namespace, None):
                self._names.setdefault((callee.kind, callee.name, namespace), name)
            self.places.append(place)
            self.chat.append({"type": "function", "function": {**fields, "name": name}})

    def callee(self, name: str) -> Callee:
        """The tool that a model calls by this name of a function."""
        return self._callees.get(name) or Callee("function", name)

    def choose(self, choice: str | JSONObject) -> str | JSONObject | None:
        """The chat form of `tool_choice`, which is None without tools: upstreams refuse it then. Leaves out
        the tools that are not among `allowed_tools`. Raises `RequestError`."""
        match choice:
            case {"type": "allowed_tools", "mode": "auto" | "required" as mode, "tools": list(allowed)}:
                names = {self._named(one) for one in allowed}
                kept = [tool["function"]["name"] in names for tool in self.chat]
                self.chat, self.places = [*compress(self.chat, kept)], [*compress(self.places, kept)]
                choice = mode
            case dict():
                name = self._named(choice)
                if name is None:
                    raise RequestError(self._no_such(choice.get("type")), param="tool_choice")
                return {"type": "function", "function": {"name": name}}
        if choice == "required" and not self.chat:
            raise RequestError("tool_choice 'required' needs tools", param="tool_choice")
        return choice if self.chat else None

    def _named(self, choice: Any) -> str | None:
        """The name of the function for the tool that a choice names."""
        given = choice if isinstance(choice, Mapping) else {}
        kind, namespace = given.get("type"), given.get("namespace")
        wanted = kind if kind in (LOCAL_SHELL, TOOL_SEARCH) else given.get("name")
        asked = kind, wanted, namespace
        return self._names.get(asked) if all(isinstance(one, str | None) for one in asked) else None

    def _no_such(self, kind: Any) -> str:
        if any(kind == tool.type for tool in self.left_out):
            return f"tool_choice names {kind}, which no engine here has"
        return "tool_choice must name a tool that is in tools"


def chat_name(name: str, namespace: str | None = None) -> str:
    """The name of the function that stands for a tool: `crm__find` for `find` in the namespace `crm`."""
    if not namespace:
        return name
    joined = f"{namespace.rstrip('_')}__{name}"
    if len(joined) <= _MAX_NAME:
        return joined
    digest = hashlib.blake2b(joined.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return f"{joined[: _MAX_NAME - len(digest) - 1]}_{digest}"


def arguments_of(text: str) -> str:
    """The arguments of the function that stands for a custom tool, for a call with `text`."""
    return json.dumps({CUSTOM_ARGUMENT: text}, ensure_ascii=False)


def text_of(arguments: str) -> str:
    """The text of a call of a custom tool. If the call was cut, the part of it that is there; arguments of
    another form are the text themselves."""
    found = object_of(arguments).get(CUSTOM_ARGUMENT)
    if isinstance(found, str):
        return found
    if (cut := _CUT.fullmatch(arguments)) is None:
        return arguments
    return whole_characters(str(json.loads(f'"{cut[1]}"', strict=False)))


def action_of(arguments: str) -> JSONObject:
    """The command of a call of `local_shell`, in the fields that the API has."""
    given = object_of(arguments)
    command, env = given.get("command"), given.get("env")
    words = command if isinstance(command, list) else [] if command is None else [command]
    action: JSONObject = {
        "type": "exec",
        "command": [word for word in words if isinstance(word, str)],
        "env": {k: v for k, v in env.items() if isinstance(v, str)} if isinstance(env, dict) else {},
    }
    for name, kind in (("timeout_ms", int), ("user", str), ("working_directory", str)):
        action[name] = value if isinstance(value := given.get(name), kind) else None
    return action
