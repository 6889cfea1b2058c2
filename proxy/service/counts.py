"""Counts what a request's JSON holds, before any object is built of it."""

from typing import Any

import orjson

from engine.protocol import RequestError
from proxy.settings.requests import BodyOptions

_SCHEMAS = (
    *("response_format", "text", "structured_outputs", "json_schema", "regex", "ebnf", "grammar"),
    "output_config",
    *("guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_decoding"),
)
"""Fields that hold a schema or a grammar for the answer."""
_BESIDE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else"})
"""Keywords whose schemas apply to the same value."""


def check_counts(body: Any, options: BodyOptions) -> None:
    """Raise `RequestError` for the first field with more entries than the options allow.

    A field of a wrong type is not looked at: it is refused when the request is read.
    """
    if not isinstance(body, dict):
        return
    _check(len(body), options.max_fields, "fields", None)
    for name in ("messages", "input"):
        if isinstance(items := body.get(name), list):
            _check_messages(items, name, options)
    for name in ("tools", "functions"):
        if isinstance(tools := body.get(name), list):
            _check_tools(tools, name, options)
    if not body.keys().isdisjoint(("prompt", "n", "best_of")):
        _check_prompts(body, options)
    if isinstance(system := body.get("system"), list):
        _check_messages([{"content": system}], "system", options)
    for name in ("stop", "stop_sequences"):
        stop = body.get(name)
        if isinstance(stop, list):
            _check(len(stop), options.max_stop_strings, "stop strings", name)
    bias = body.get("logit_bias")
    if isinstance(bias, dict):
        _check(len(bias), options.max_logit_bias, "entries", "logit_bias")
    if isinstance(metadata := body.get("metadata"), dict):
        _check_metadata(metadata, options)
    for name in _SCHEMAS:
        if name in body:
            _check_schema(body[name], name, options)


def _check(number: int, most: int, things: str, param: str | None) -> None:
    if number > most:
        where = f"{param}: " if param else ""
        raise RequestError(
            f"{where}there are {number} {things}, and at most {most} are taken.", param=param, code="too_long"
        )


def _check_messages(messages: list[Any], name: str, options: BodyOptions) -> None:
    """A chat's messages, or a response's items. The result of a tool may have parts of its own."""
    things = "messages" if name == "messages" else "items"
    _check(len(messages), options.max_messages, things, name)
    num_parts = 0
    for i, message in enumerate(messages):
        if not isinstance(message, dict):
            continue
        parts = _parts(message)
        num_parts += len(parts)
        _check(num_parts, options.max_content_parts, "parts and tool calls", name)
        for one in (message, *parts):
            if isinstance(one, dict):
                _check(len(one), options.max_fields, "fields", f"{name}.{i}")


def _parts(message: dict[str, Any]) -> list[Any]:
    parts: list[Any] = []
    for field in ("content", "output", "summary", "tool_calls"):
        if isinstance(own := message.get(field), list):
            parts += own
    for part in parts[:]:
        if isinstance(part, dict) and isinstance(inner := part.get("content"), list):
            parts += inner
    return parts


def _check_tools(tools: list[Any], name: str, options: BodyOptions) -> None:
    _check(len(tools), options.max_tools, "tools", name)
    for i, tool in enumerate(tools):
        _check_schema(tool, f"{name}.{i}", options)


def _check_schema(schema: Any, param: str, options: BodyOptions) -> None:
    if isinstance(schema, dict | list | str):
        size = _json_size(schema)
        _check(size, options.max_schema_size, "bytes", param)
        most = _branches(schema)[1] if isinstance(schema, dict | list) else 0
        _check(most, options.max_schema_branches, "schemas for one value", param)


def _branches(value: Any) -> tuple[int, int]:
    """The schemas for the value that the schema `value` is for, and the most for any value within it."""
    own, most = 1, 1
    for name, part in value.items() if isinstance(value, dict) else enumerate(value):
        is_beside = name in _BESIDE
        for one in part if is_beside and isinstance(part, list) else (part,):
            number, inside = _branches(one) if isinstance(one, dict | list) else (1, 1)
            own += number if is_beside else 0
            most = max(most, inside)
    return own, max(own, most)


def _check_prompts(body: dict[str, Any], options: BodyOptions) -> None:
    prompt = body.get("prompt")
    num_prompts = 1
    if isinstance(prompt, list) and not all(type(one) is int for one in prompt):
        num_prompts = len(prompt)
        _check(num_prompts, options.max_prompts, "prompts", "prompt")
    candidates = {name: value for name in ("n", "best_of") if isinstance(value := body.get(name), int)}
    most = max(candidates, key=lambda name: candidates[name], default="n")
    param = most if num_prompts == 1 else "prompt"
    _check(num_prompts * candidates.get(most, 1), options.max_outputs, "outputs", param)


def _check_metadata(metadata: dict[str, Any], options: BodyOptions) -> None:
    _check(len(metadata), options.max_metadata, "entries", "metadata")
    for key, value in metadata.items():
        _check(len(key), options.max_metadata_key, "characters in a key", "metadata")
        size = len(value) if isinstance(value, str) else _json_size(value)
        _check(size, options.max_metadata_value, "characters in a value", "metadata")


def _json_size(value: Any) -> int:
    return len(orjson.dumps(value))
