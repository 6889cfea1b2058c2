"""Tools that are no functions: those that an API's own servers run, and kinds that Weir does not know.

Hooks are shown nothing of such a tool's work (contract 5.3), so no model is offered one. A request that has
one is answered all the same, and a header names the tool's kind.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, TypeVar

from pydantic import Discriminator, Tag

from proxy.wire.openai.endpoint_fields import RequestObject, tool_kind

FUNCTION, OTHER = "a function", "another tool"
"""The tags of the two kinds. They have a space, so an error's `param` leaves them out."""

T = TypeVar("T")


class OtherTool(RequestObject):
    """A tool that no model is offered."""

    type: str
    name: Any = None


Other = Annotated[OtherTool, Tag(OTHER)]


def by_type(*functions: str | None) -> Discriminator:
    """Tells functions, which have one of these types, from other tools."""

    def tag(tool: Any) -> str:
        kind = tool.get("type") if isinstance(tool, dict) else getattr(tool, "type", None)
        return OTHER if isinstance(kind, str) and kind not in functions else FUNCTION

    return Discriminator(tag)


def functions_of(tools: Iterable[T | OtherTool]) -> list[T]:
    return [tool for tool in tools if not isinstance(tool, OtherTool)]


def place_among(tools: Iterable[Any], index: int) -> int:
    """The place among all tools of a function. `index`: its place among the functions."""
    return [i for i, tool in enumerate(tools) if not isinstance(tool, OtherTool)][index]


def others_named(tools: Iterable[Any]) -> Iterator[str]:
    """The kinds of the tools that no model is offered, as names of ignored fields."""
    return (tool_kind(tool.type) for tool in tools if isinstance(tool, OtherTool))


def not_offered(tools: Iterable[Any], name: str | None) -> str:
    """The words that follow an error for a call that the model must make: a tool of this name is not
    available. Empty if there is none. None: any name."""
    is_one = any(isinstance(tool, OtherTool) and name in (None, tool.name) for tool in tools)
    return ": tools that are no functions are not available here" if is_one else ""
