"""Tools that a model must call: the grammar of its own way to write calls (`engine.parsers.tool_calls`)."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from engine.guided.grammar import BLANKS, Asked, Grammar
from engine.protocol import GenerationRequest, RequestError
from engine.text.tokenizer import LocalTokenizer

Function = Mapping[str, Any]


def forced_calls(request: GenerationRequest, parser: str | None, tokenizer: LocalTokenizer) -> Asked | None:
    """The calls that the request must be answered with; None: it may be answered otherwise. Raises
    `RequestError`."""
    choice = request.tool_choice
    if not request.uses_tools or choice in (None, "auto"):
        return None
    if parser not in FORMS:
        raise RequestError(
            "tool_choice: calls cannot be forced in the form that this server's model writes them in; give "
            "'auto' or 'none'.",
            param="tool_choice",
        )
    functions = [tool["function"] for tool in request.tools]
    if isinstance(choice, Mapping):
        name = choice["function"]["name"]
        functions = [function for function in functions if function["name"] == name][:1]
    is_one = isinstance(choice, Mapping) or not request.parallel_tool_calls
    text = "\n".join(FORMS[parser](functions, is_one, tokenizer))
    return Asked(Grammar("lark", text), "tools")


Form = Callable[[list[Function], bool, LocalTokenizer], Iterator[str]]
"""The rules, in Lark, for calls of these functions: one, or more."""


def _hermes(functions: list[Function], is_one: bool, tokenizer: LocalTokenizer) -> Iterator[str]:
    start, end = _marker("<tool_call>", tokenizer), _marker("</tool_call>", tokenizer)
    yield "start: call" if is_one else 'start: call ("\\n" call)*'
    yield f'call: {start} "\\n" object "\\n" {end}'
    yield from _objects(functions, "arguments")


def _llama3_json(functions: list[Function], is_one: bool, tokenizer: LocalTokenizer) -> Iterator[str]:
    yield "start: object" if is_one else 'start: object ("; " object)*'
    yield from _objects(functions, "parameters")


def _mistral(functions: list[Function], is_one: bool, tokenizer: LocalTokenizer) -> Iterator[str]:
    start, arguments = _marker("[TOOL_CALLS]", tokenizer), _marker("[ARGS]", tokenizer)
    if arguments.startswith("<["):  # the tokenizer has it, and so it is of the later form
        yield "start: call" if is_one else "start: call+"
        yield f"call: {start} named"
        yield "named: " + _either(functions)
        for i, function in enumerate(functions):
            yield f"f{i}: {_text(function['name'])} {arguments} {_schema(function, i)}"
        return
    yield f'start: {start} "[" ' + ('object "]"' if is_one else 'object (", " object)* "]"')
    yield from _objects(functions, "arguments")


FORMS: dict[str | None, Form] = {"hermes": _hermes, "llama3_json": _llama3_json, "mistral": _mistral}
"""By the parsers that read them. gpt-oss writes its calls in channels, after whatever it thinks of first."""


def _objects(functions: list[Function], key: str) -> Iterator[str]:
    yield "object: " + _either(functions)
    for i, function in enumerate(functions):
        name = json.dumps(function["name"], ensure_ascii=False)
        opening = _text(f'{{"name": {name}, "{key}": ')
        yield f'f{i}: {opening} {_schema(function, i)} "}}"'


def _either(functions: list[Function]) -> str:
    return " | ".join(f"f{i}" for i in range(len(functions)))


def _schema(function: Function, at: int) -> str:
    """What its arguments are, an object in any case: parsers take nothing else for a call's."""
    schema = function.get("parameters")
    field = f"tools[{at}].function.parameters"
    if not isinstance(schema, Mapping | None):
        raise RequestError(f"{field} must be a JSON schema.", param=field)
    schema = {"type": "object", "x-guidance": {"whitespace_pattern": BLANKS}} | dict(schema or {})
    if schema["type"] != "object":
        raise RequestError(f"{field} must be a JSON schema of an object.", param=field)
    return "%json " + orjson.dumps(schema).decode()


def _marker(text: str, tokenizer: LocalTokenizer) -> str:
    """A special token is not its text."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    return f"<[{ids[0]}]>" if len(ids) == 1 and ids[0] in tokenizer.special_ids else _text(text)


def _text(text: str) -> str:
    return json.dumps(text)
