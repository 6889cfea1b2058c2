"""Makes the grammar for tools that a model must call, in the model's own form (`engine.parsers.formats`).

Lark reads JSON's escapes, so `json.dumps` writes its strings.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from engine.protocol import GenerationRequest, RequestError
from engine.sampling.guided.grammar import WHITESPACE, Grammar, RequestedGrammar
from engine.text.tokenizer import LocalTokenizer

Function = Mapping[str, Any]


def forced_calls(
    request: GenerationRequest, parser: str | None, tokenizer: LocalTokenizer
) -> RequestedGrammar | None:
    """The grammar of the calls that must answer the request, or None. Raises `RequestError`."""
    choice = request.tool_choice
    if not request.uses_tools or choice in (None, "auto"):
        return None
    if parser not in CALL_RULES:
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
    text = "\n".join(CALL_RULES[parser](functions, is_one, tokenizer))
    schemas = tuple(_schema(function, i) for i, function in enumerate(functions))
    return RequestedGrammar(Grammar("lark", text, schemas=schemas), "tools")


CallRules = Callable[[list[Function], bool, LocalTokenizer], Iterator[str]]
"""Gives the rules, in Lark, for calls of these functions: for one call, or for several."""


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
    if arguments.startswith("<["):  # the tokenizer has this token, so the model writes the later form
        yield "start: call" if is_one else "start: call+"
        yield f"call: {start} named"
        yield "named: " + _either(functions)
        for i, function in enumerate(functions):
            yield f"f{i}: {json.dumps(function['name'])} {arguments} json{i}"
        return
    yield f'start: {start} "[" ' + ('object "]"' if is_one else 'object (", " object)* "]"')
    yield from _objects(functions, "arguments")


CALL_RULES: dict[str | None, CallRules] = {
    "ernie45": _hermes,
    "granite4": _hermes,
    "hermes": _hermes,
    "llama3_json": _llama3_json,
    "mistral": _mistral,
}
"""By the parser that reads the calls. Calls of other forms cannot be forced. gpt-oss writes calls in
channels, after any thoughts."""


def _objects(functions: list[Function], key: str) -> Iterator[str]:
    yield "object: " + _either(functions)
    for i, function in enumerate(functions):
        name = json.dumps(function["name"], ensure_ascii=False)
        opening = json.dumps(f'{{"name": {name}, "{key}": ')
        yield f'f{i}: {opening} json{i} "}}"'


def _either(functions: list[Function]) -> str:
    return " | ".join(f"f{i}" for i in range(len(functions)))


def _schema(function: Function, at: int) -> str:
    """The schema of the function's arguments. They are always an object: parsers accept nothing else."""
    schema = function.get("parameters")
    field = f"tools[{at}].function.parameters"
    if not isinstance(schema, Mapping | None):
        raise RequestError(f"{field} must be a JSON schema.", param=field)
    if schema is None:
        schema = {"properties": {}}  # by the API, the function has no parameters
    schema = {"type": "object", "x-guidance": {"whitespace_pattern": WHITESPACE}} | dict(schema)
    if schema["type"] != "object":
        raise RequestError(f"{field} must be a JSON schema of an object.", param=field)
    return orjson.dumps(schema).decode()


def _marker(text: str, tokenizer: LocalTokenizer) -> str:
    """A marker in Lark. A special token is named by its id, because its text does not match it."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    return f"<[{ids[0]}]>" if len(ids) == 1 and ids[0] in tokenizer.special_ids else json.dumps(text)
