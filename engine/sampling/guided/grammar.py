"""Reads from a request's fields which grammar its outputs must follow. Loads no library of grammars.

- `response_format`: `json_object`, or `json_schema` with a schema (`text.format` of the responses endpoint);
- `structured_outputs`: one of `json`, `json_object`, `regex`, `choice` and `grammar`;
- `guided_json`, `guided_regex`, `guided_choice`, `guided_grammar`: the same, as vLLM first spelled it.

The fields stay in `GenerationRequest.extra`, so that an upstream gets them unchanged. llguidance reads and
judges schemas and grammars; here only the outer form of the fields is checked.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import orjson

from engine.protocol import GenerationRequest, RequestError
from engine.protocol.fields.names import caller_name
from engine.sampling.guided.closed_objects import with_closed_objects

WHITESPACE = r" |\r?\n[ \t]{0,32}"
"""The text between JSON's tokens: nothing, a space, or a line break with an indent. The bound keeps a
model from continuing with whitespace for ever."""

GrammarKind = Literal["json", "regex", "choice", "grammar", "lark"]


class Grammar(NamedTuple):
    """The form of an output. Equal grammars are compiled once."""

    kind: GrammarKind
    text: str
    """A schema, or a list of choices, as JSON; a regular expression; GBNF or Lark."""
    whitespace: str = WHITESPACE
    """For JSON: a regular expression for the whitespace between tokens."""
    schemas: tuple[str, ...] = ()
    """For Lark: JSON schemas. The text calls them `json0`, `json1` and so on."""

    @property
    def size(self) -> int:
        """Characters."""
        return len(self.text) + len(self.whitespace) + sum(map(len, self.schemas))

    def whole(self) -> "Grammar":
        """The grammar in one text, with closed objects (`closed_objects`). A large schema takes a while."""
        if self.kind == "json":
            return self._replace(text=with_closed_objects(self.text))
        rules = [f"json{i}: %json {with_closed_objects(schema)}" for i, schema in enumerate(self.schemas)]
        return self._replace(text="\n".join((self.text, *rules)), schemas=())


class RequestedGrammar(NamedTuple):
    """A grammar, and the field that asked for it. Errors name the field."""

    grammar: Grammar
    field: str


def requested_grammar(request: GenerationRequest) -> RequestedGrammar | None:
    """The grammar that the request's fields ask for. Raises `RequestError`, which names the field."""
    found = list(_all_requested(request))
    if len(found) > 1:
        names = " and ".join(one.field for one in found)
        raise RequestError(f"Only one of {names} can be given.", param=found[1].field)
    return found[0] if found else None


def _all_requested(request: GenerationRequest) -> Iterator[RequestedGrammar]:
    extra = request.extra
    whitespace = _whitespace({"whitespace_pattern": extra.get("guided_whitespace_pattern")}, "guided_")
    if (response_format := extra.get("response_format")) is not None:
        name = caller_name(request.endpoint, "response_format")
        yield from _from_response_format(response_format, name, whitespace)
    if (structured := extra.get("structured_outputs")) is not None:
        yield from _from_structured_outputs(structured)
    for kind in _READERS:
        name = f"guided_{kind}"
        value = extra.get(name)
        if value is not None and value is not False:
            yield _read(kind, value, name, whitespace)


def _from_response_format(value: Any, name: str, whitespace: str) -> Iterator[RequestedGrammar]:
    match value:
        case {"type": "text"}:
            return
        case {"type": "json_object"}:
            yield _read("json_object", True, name, whitespace)
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            at = "response_format.json_schema" if name == "response_format" else name
            yield _read("json", schema, f"{at}.schema", whitespace)
        case _:
            raise RequestError(
                f"{name} must be of type text, json_object or json_schema (with a schema).", param=name
            )


def _from_structured_outputs(value: Any) -> Iterator[RequestedGrammar]:
    at = "structured_outputs"
    if not isinstance(value, Mapping):
        raise RequestError(f"{at} must be an object.", param=at)
    given = {name: one for name, one in value.items() if one is not None and one is not False}
    for name in given:
        if name not in (*_READERS, "whitespace_pattern", "disable_any_whitespace"):
            raise RequestError(f"{at}.{name} is not supported by this engine.", param=f"{at}.{name}")
    kinds = [kind for kind in _READERS if kind in given]
    if not kinds:
        raise RequestError(f"{at} must have one of {', '.join(_READERS)}.", param=at)
    for kind in kinds:
        yield _read(kind, given[kind], f"{at}.{kind}", _whitespace(given, f"{at}."))


def _whitespace(options: Mapping[str, Any], at: str) -> str:
    if options.get("disable_any_whitespace"):
        return ""
    pattern = options.get("whitespace_pattern")
    if pattern is None:
        return WHITESPACE
    if not isinstance(pattern, str):
        name = f"{at}whitespace_pattern"
        raise RequestError(f"{name} must be a regular expression.", param=name)
    return pattern


def _read(kind: str, value: Any, field: str, whitespace: str = WHITESPACE) -> RequestedGrammar:
    try:
        grammar_kind, text = _READERS[kind](value)
        text.encode()
    except ValueError as error:
        reason = "is not valid Unicode" if isinstance(error, UnicodeError) else error
        raise RequestError(f"{field} {reason}.", param=field) from error
    return RequestedGrammar(
        Grammar(grammar_kind, text, whitespace if grammar_kind == "json" else WHITESPACE), field
    )


def _json(value: Any) -> tuple[GrammarKind, str]:
    try:
        schema = orjson.loads(value) if isinstance(value, str) else value
        if not isinstance(schema, Mapping | bool):
            raise TypeError("neither an object nor a boolean")
        return "json", orjson.dumps({} if schema is True else schema).decode()
    except (orjson.JSONDecodeError, TypeError, RecursionError) as error:
        raise ValueError("must be a JSON schema") from error


def _json_object(value: Any) -> tuple[GrammarKind, str]:
    if value is not True:
        raise ValueError("must be true or false")
    return "json", '{"type":"object"}'


def _text(kind: GrammarKind, meaning: str, value: Any) -> tuple[GrammarKind, str]:
    if not isinstance(value, str):
        raise ValueError(f"must be {meaning}")
    return kind, value


def _choice(value: Any) -> tuple[GrammarKind, str]:
    if not isinstance(value, list | tuple) or not value or not all(isinstance(one, str) for one in value):
        raise ValueError("must be a list of texts")
    try:
        return "choice", orjson.dumps(list(value)).decode()
    except TypeError as error:
        raise ValueError("must be a list of texts") from error


_READERS: dict[str, Callable[[Any], tuple[GrammarKind, str]]] = {
    "json": _json,
    "json_object": _json_object,
    "regex": partial(_text, "regex", "a regular expression"),
    "choice": _choice,
    "grammar": partial(_text, "grammar", "a grammar"),
}

GRAMMAR_FIELDS = {
    "response_format",
    "structured_outputs",
    *(f"guided_{name}" for name in (*_READERS, "whitespace_pattern", "decoding_backend")),
}
"""The fields that may ask for a grammar. `guided_decoding_backend` has no effect: it names a library, and
every library must give the same outputs."""
