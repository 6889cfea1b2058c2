"""Writes a chat's tools as the Messages API has them. No I/O."""

from collections.abc import Mapping
from typing import Any

from engine.protocol import GenerationRequest
from engine.upstream.messages.fields import refused

_CHOICES = {"none": "none", "auto": "auto", "required": "any"}


def tool_fields(request: GenerationRequest) -> dict[str, Any]:
    """The fields `tools` and `tool_choice`. Raises `RequestError` for tools that are not functions."""
    if not request.tools:
        return {}
    fields: dict[str, Any] = {"tools": [_tool(tool, f"tools[{i}]") for i, tool in enumerate(request.tools)]}
    choice = _choice(request.tool_choice)
    if not request.parallel_tool_calls and choice != {"type": "none"}:
        choice = {"type": "auto", **choice, "disable_parallel_tool_use": True}
    return fields | ({"tool_choice": choice} if choice else {})


def _tool(tool: Mapping[str, Any], place: str) -> dict[str, Any]:
    match tool:
        case {"type": "function", "function": {"name": str(name), **function}}:
            written = {"name": name, "input_schema": function.pop("parameters", None) or {"type": "object"}}
            mark = function.pop("cache_control", None) or tool.get("cache_control")
            for field in ("description", "strict"):
                if (value := function.pop(field, None)) is not None:
                    written[field] = value
            if function:
                raise refused(f"{place}.function.{next(iter(function))}")
            return written | ({"cache_control": mark} if mark else {})
    raise refused(f"{place}.type")


def _choice(choice: str | Mapping[str, Any] | None) -> dict[str, Any]:
    match choice:
        case None:
            return {}
        case str() if choice in _CHOICES:
            return {"type": _CHOICES[choice]}
        case {"type": "function", "function": {"name": str(name)}}:
            return {"type": "tool", "name": name}
    raise refused("tool_choice")
