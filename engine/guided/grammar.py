"""What a request asks its outputs to be, in the fields of OpenAI and vLLM. No library is loaded here.

- `response_format`: `json_object`, or `json_schema` with a schema (the responses endpoint's `text.format`);
- `structured_outputs`: one of `json`, `json_object`, `regex`, `choice` and `grammar`;
- `guided_json`, `guided_regex`, `guided_choice`, `guided_grammar`: the same as vLLM first spelled it.

They are left in `GenerationRequest.extra`, so that an upstream gets them as they were given.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import orjson

from engine.protocol import GenerationRequest, RequestError

BLANKS = r" |\r?\n[ \t]{0,32}"
"""Between JSON's tokens there may be none, or these: one line, or lines with indents. No model goes on with
blanks for ever."""
NO_BLANKS = ""

Kind = Literal["json", "regex", "choice", "grammar", "lark"]


class Grammar(NamedTuple):
    """What an output must be. Equal ones are compiled once."""

    kind: Kind
    text: str
    """A schema, or a list of choices, as JSON; a regular expression; GBNF or Lark."""
    blanks: str = BLANKS
    """Of JSON: a regular expression."""


class Asked(NamedTuple):
    """A grammar, and the field that it came in: errors name it."""

    grammar: Grammar
    field: str


def asked_of(request: GenerationRequest) -> Asked | None:
    """What the request's fields ask its text to be. Raises `RequestError`, naming the field."""
    found = list(_all_asked(request))
    if len(found) > 1:
        names = " and ".join(asked.field for asked in found)
        raise RequestError(f"Only one of {names} can be given.", param=found[1].field)
    return found[0] if found else None


def _all_asked(request: GenerationRequest) -> Iterator[Asked]:
    extra = request.extra
    if (response_format := extra.get("response_format")) is not None:
        name = "text.format" if request.endpoint == "responses" else "response_format"
        yield from _of_response_format(response_format, name)
    if (structured := extra.get("structured_outputs")) is not None:
        yield from _of_structured_outputs(structured)
    blanks = _blanks({"whitespace_pattern": extra.get("guided_whitespace_pattern")}, "guided_")
    for kind in _READERS:
        name = f"guided_{kind}"
        value = extra.get(name)
        if value is not None and value is not False:
            yield _read(kind, value, name, blanks)


def _of_response_format(value: Any, name: str) -> Iterator[Asked]:
    match value:
        case {"type": "text"}:
            return
        case {"type": "json_object"}:
            yield _read("json_object", True, name)
        case {"type": "json_schema", "json_schema": {"schema": schema}} if name == "response_format":
            yield _read("json", schema, "response_format.json_schema.schema")
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            yield _read("json", schema, f"{name}.schema")
        case _:
            raise RequestError(
                f"{name} must be of type text, json_object or json_schema (with a schema).", param=name
            )


def _of_structured_outputs(value: Any) -> Iterator[Asked]:
    at = "structured_outputs"
    if not isinstance(value, Mapping):
        raise RequestError(f"{at} must be an object.", param=at)
    given = {name: one for name, one in value.items() if one is not None and one is not False}
    for name in given:
        if name not in _READERS and name not in _OPTIONS:
            raise RequestError(f"{at}.{name} is not supported by this engine.", param=f"{at}.{name}")
    kinds = [kind for kind in _READERS if kind in given]
    if not kinds:
        raise RequestError(f"{at} must have one of {', '.join(_READERS)}.", param=at)
    for kind in kinds:
        yield _read(kind, given[kind], f"{at}.{kind}", _blanks(given, f"{at}."))


_OPTIONS = ("whitespace_pattern", "disable_any_whitespace")


def _blanks(options: Mapping[str, Any], at: str) -> str:
    if options.get("disable_any_whitespace"):
        return NO_BLANKS
    pattern = options.get("whitespace_pattern")
    if pattern is None:
        return BLANKS
    if not isinstance(pattern, str):
        name = f"{at}whitespace_pattern"
        raise RequestError(f"{name} must be a regular expression.", param=name)
    return pattern


def _read(kind: str, value: Any, field: str, blanks: str = BLANKS) -> Asked:
    try:
        known, text = _READERS[kind](value)
        text.encode()
    except ValueError as error:
        reason = "is not valid Unicode" if isinstance(error, UnicodeError) else error
        raise RequestError(f"{field} {reason}.", param=field) from error
    return Asked(Grammar(known, text, blanks if known == "json" else BLANKS), field)


GUIDED_FIELDS = frozenset(
    {f"guided_{kind}" for kind in ("json", "json_object", "regex", "choice", "grammar")}
    | {"guided_whitespace_pattern", "guided_decoding_backend"}
)
"""Of a request. Which library does it changes nothing that is promised here."""


def _json(value: Any) -> tuple[Kind, str]:
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise ValueError("must be a JSON schema") from error
    if not isinstance(value, Mapping | bool):
        raise ValueError("must be a JSON schema")
    try:
        return "json", orjson.dumps({} if value is True else value).decode()
    except (TypeError, RecursionError) as error:
        raise ValueError("must be a JSON schema") from error


def _json_object(value: Any) -> tuple[Kind, str]:
    if value is not True:
        raise ValueError("must be true or false")
    return "json", '{"type":"object"}'


def _regex(value: Any) -> tuple[Kind, str]:
    if not isinstance(value, str):
        raise ValueError("must be a regular expression")
    return "regex", value


def _choice(value: Any) -> tuple[Kind, str]:
    if not isinstance(value, list | tuple) or not value or not all(isinstance(one, str) for one in value):
        raise ValueError("must be a list of texts")
    try:
        return "choice", orjson.dumps(list(value)).decode()
    except TypeError as error:
        raise ValueError("must be a list of texts") from error


def _grammar(value: Any) -> tuple[Kind, str]:
    if not isinstance(value, str):
        raise ValueError("must be a grammar")
    return "grammar", value


_READERS: dict[str, Callable[[Any], tuple[Kind, str]]] = {
    "json": _json,
    "json_object": _json_object,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
}
