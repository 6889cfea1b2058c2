"""The treatment of each field of a request's JSON: an endpoint acts on some, refuses some, and leaves the
rest to the engine."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict

from engine.protocol import RequestError
from engine.protocol.fields.asked import ENGINE_FIELDS, SAMPLING_FIELDS
from engine.protocol.fields.names import (
    BINDING,
    LENGTH_LIMITS,
    defaults_of,
    engine_name,
    is_known,
    is_neutral,
)
from engine.protocol.fields.support import FieldSupport, Treatment
from engine.protocol.fields.table import EMPTY, FIELDS
from proxy.wire.body import RequestBody

Endpoint = Literal["chat", "completions", "responses", "messages"]

_OF_ENGINES = SAMPLING_FIELDS | ENGINE_FIELDS | BINDING | {"reasoning_effort", "verbosity"}
_OF_SOME_ENDPOINTS = SAMPLING_FIELDS | {"echo"}
"""Fields that an engine takes from an endpoint that has them, and from no other."""
_OF_OTHER_ENDPOINTS = frozenset({"messages", "prompt", "top_logprobs"})
"""Fields that an endpoint without them keeps from an upstream: Weir writes them itself."""

_OF_OTHERS = {
    "guardrails": "is refused: here the field is hooks, and it takes names of the server's allowed_hooks"
}
"""Fields of other gateways that ask for a guard. Ignored, they would leave a text unguarded."""

HEADER = "X-Weir-Ignored-Fields"
MAX_NAMES = 32
"""Names in the header."""
KEEPS_ENDS = "hooks are shown the end of the prompt as the text that the output continues"
_CHANGES_ENDS = re.compile("truncation|truncation_side|max_length|tokenizer_kwargs|[a-z_]+_token")
"""Arguments of a chat template that change how the prompt ends, where a server gives them to the tokenizer:
these cut it, or put a text in the place of a special token, such as the one after a message."""
_LIKE = 0.85
"""From this likeness on (difflib's), a name is a known one with a slip of the pen."""
_MAX_COMPARED = 4
"""Unknown names of a request that are compared with all known ones."""


def tool_kind(kind: str) -> str:
    """The name of an ignored field that stands for the tools of a kind."""
    return f"tools.{kind}"


_OF_TOOLS = {
    tool_kind(kind)
    for kind in (
        *("web_search", "web_search_preview", "file_search", "code_interpreter", "image_generation", "mcp"),
        *("tool_search", "computer", "computer_use_preview", "shell", "apply_patch"),
    )
}
"""Names of known tools that no engine has. Another type of tool is the caller's own word."""
_NAME = re.compile(r"[A-Za-z_][\w.-]{0,63}", re.ASCII)


REQUEST_OBJECT = ConfigDict(strict=True, extra="allow")
"""The configuration of models of JSON objects inside a request's body. Fields that Weir does not know are
kept as they are."""


class RequestObject(BaseModel):
    """A JSON object inside a request's body.

    pydantic builds a class's validator when the first such object comes: most servers use few endpoints.
    """

    model_config = ConfigDict(**REQUEST_OBJECT, defer_build=True)


class Options(RequestObject):
    """An object of settings. Each is a field with a dotted name, such as `text.format`."""


class EndpointFields(RequestBody, RequestObject):
    """The body of a request for a generation."""

    endpoint: ClassVar[Endpoint]
    refused: ClassVar[Mapping[str, str]] = {}
    """Fields that no engine gets, each with the words that follow its name in the error."""
    by_service: ClassVar[frozenset[str]] = frozenset()
    """Fields that need no engine here, though they do on another endpoint."""
    without_effect: ClassVar[frozenset[str]] = frozenset()
    """Fields that are read and change nothing."""

    @classmethod
    def treatment(cls, name: str, support: FieldSupport) -> Treatment:
        """The treatment of a field with the engine that has this `support`."""
        if name in refusals_of(cls):
            return Treatment.REFUSED
        is_own = name in names_of(cls) or name in LENGTH_LIMITS
        if name in cls.without_effect or not (is_own or cls.passes(name)):
            return Treatment.IGNORED
        if name in _read_here(cls):
            return Treatment.HONOURED
        return support.treatment(engine_name(cls.endpoint, name), cls.endpoint)

    @classmethod
    def passes(cls, name: str) -> bool:
        """Whether an engine gets a field that the endpoint does not have itself."""
        return "." not in name and name not in _OF_OTHER_ENDPOINTS

    @property
    def extra(self) -> dict[str, Any]:
        """Fields of the JSON that the endpoint does not read itself, for the engine."""
        refusals = refusals_of(type(self))
        return {
            name: value
            for name, value in (self.model_extra or {}).items()
            if self.passes(name)
            and name not in self.without_effect
            and name not in LENGTH_LIMITS
            and name not in refusals
        }

    def check_refused(self) -> None:
        """Raise `RequestError` for the first field that is refused, whichever engine runs."""
        refusals = refusals_of(type(self))
        for name in _asked(self, defaults_of(self.endpoint)):
            if name in refusals:
                raise RequestError(f"{name} {refusals[name]}.", param=name)

    def ignored(self, support: FieldSupport) -> list[str]:
        """The names of the fields that have no effect with this engine. At most one more than `MAX_NAMES`."""
        names: list[str] = []
        if self.model_extra or not self.model_fields_set.isdisjoint(_may_be_ignored(type(self), support)):
            for name in _asked(self, defaults_of(self.endpoint), with_unknown=True):
                if self._is_ignored(name, support):
                    names.append(name)
                    if len(names) > MAX_NAMES:
                        break
        return [*dict.fromkeys([*names, *self.unread(support)])][: MAX_NAMES + 1]

    def unread(self, support: FieldSupport) -> Iterable[str]:
        """The names of parts of fields that have no effect with this engine: `tools.defer_loading`."""
        return ()

    def _is_ignored(self, name: str, support: FieldSupport) -> bool:
        """Whether the field, or the value that it has, has no effect with this engine."""
        treatment = self.treatment(name, support)
        if treatment is not Treatment.HONOURED:
            return treatment is Treatment.IGNORED
        known = support.values.get(engine_name(self.endpoint, name))
        return known is not None and (self.model_extra or {}).get(name) not in known


def check_guards(fields: Mapping[str, Any]) -> None:
    """Raise `RequestError` for a field by which other gateways are asked for a guard."""
    for name, words in _OF_OTHERS.items():
        if fields.get(name):
            raise RequestError(f"{name} {words}.", param=name)


def check_code(fields: Mapping[str, Any]) -> None:
    """Raise `RequestError` for a chat template among the fields, or among the template's arguments (contract
    7.3)."""
    arguments = fields.get("chat_template_kwargs")
    for place, given in (("", fields), ("chat_template_kwargs.", arguments)):
        if isinstance(given, Mapping) and given.get("chat_template"):
            name = f"{place}chat_template"
            raise RequestError(f"{name} is refused: no code is taken from a request.", param=name)


def check_ends(fields: Mapping[str, Any]) -> None:
    """Raise `RequestError` for an argument of the chat template by which the prompt would not end with the
    text that hooks are shown as the lead (contract 2.8)."""
    arguments = fields.get("chat_template_kwargs")
    for name, value in arguments.items() if isinstance(arguments, Mapping) else ():
        if _CHANGES_ENDS.fullmatch(name) and value is not None and value is not False:
            field = f"chat_template_kwargs.{name}"
            raise RequestError(f"{field} is refused: {KEEPS_ENDS}.", param=field)


def known_names(names: Iterable[str]) -> str:
    """The names for the log. A name that Weir does not know is the caller's own words, and is `other`, unless
    it is a known name with a slip of the pen."""
    shown = (
        name if is_known(name) or name in _OF_TOOLS else "other" if meant is None else f"{name} ({meant}?)"
        for name, meant in _with_meant(names)
    )
    return ", ".join(dict.fromkeys(shown))


def _with_meant(names: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Each name with the field that was meant. None: it is a field's name, or like none."""
    num_compared = 0
    for name in names:
        num_compared += not is_known(name)
        may_compare = num_compared <= _MAX_COMPARED and not is_known(name)
        yield name, _misspelt(name) if may_compare else None


@lru_cache(1024)
def _misspelt(name: str) -> str | None:
    """The field that was meant. None: the name is like none."""
    if not _NAME.fullmatch(name):
        return None
    return next(iter(get_close_matches(name, FIELDS, 1, _LIKE)), None)


def ignored_header(names: list[str]) -> dict[str, str]:
    """The header that names ignored fields. Callers choose names of fields, so it holds few, and only those
    that look like names. It is a list of RFC 8941: `max_tokenz;meant=max_tokens, store`."""
    shown = [
        (name if _NAME.fullmatch(name) else "other")
        + (f";meant={meant}" if meant and "." not in name else "")
        for name, meant in _with_meant(names[:MAX_NAMES])
    ]
    shown += ["other"] if len(names) > MAX_NAMES else []
    return {HEADER: ", ".join(dict.fromkeys(shown))} if shown else {}


@cache
def names_of(cls: type[BaseModel]) -> frozenset[str]:
    """The names of all fields. An object of settings has its settings' names instead of its own."""
    names = set[str]()
    for own, field in cls.model_fields.items():
        name = field.alias or own
        options = options_of(cls, name)
        names |= {name} if options is None else {f"{name}.{part}" for part in names_of(options)}
    return frozenset(names)


@cache
def refusals_of(cls: type[EndpointFields]) -> Mapping[str, str]:
    """The fields that no engine gets, each with the words that follow its name in the error."""
    missing = _OF_SOME_ENDPOINTS - names_of(cls)
    return {**dict.fromkeys(missing, "is not a field of this endpoint"), **_OF_OTHERS, **cls.refused}


@cache
def _read_here(cls: type[EndpointFields]) -> frozenset[str]:
    """The fields that have their effect whichever engine runs."""
    own = (name for name in names_of(cls) if engine_name(cls.endpoint, name) not in _OF_ENGINES)
    return cls.by_service.union(own)


@cache
def may_be_refused(cls: type[EndpointFields]) -> frozenset[str]:
    """The class's own fields, by their names in Python, of which one may be refused."""
    refusals = refusals_of(cls)
    return _own_fields(cls, lambda name: name in refusals)


@lru_cache(256)
def _may_be_ignored(cls: type[EndpointFields], support: FieldSupport) -> frozenset[str]:
    """The class's own fields, by their names in Python, of which one may have no effect with this engine."""
    return _own_fields(cls, lambda name: cls.treatment(name, support) is Treatment.IGNORED)


def _own_fields(cls: type[BaseModel], wanted: Callable[[str], bool]) -> frozenset[str]:
    """The fields whose names are wanted, and all objects of settings: a caller names their parts."""
    names = {own: field.alias or own for own, field in cls.model_fields.items()}
    return frozenset(own for own, name in names.items() if wanted(name) or options_of(cls, name))


def options_of(cls: type[BaseModel], name: str) -> type[Options] | None:
    """The class of the field's object of settings. None for other fields."""
    for own, field in cls.model_fields.items():
        if (field.alias or own) == name:
            kinds = (field.annotation, *get_args(field.annotation))
            return next((one for one in kinds if isinstance(one, type) and issubclass(one, Options)), None)
    return None


def _asked(
    fields: BaseModel, defaults: Mapping[str, Any], prefix: str = "", *, with_unknown: bool = False
) -> Iterator[str]:
    """The names of the fields that ask for something: they have neither their own default nor the one in
    `defaults`. `with_unknown`: a false or empty value of an unknown field may ask for something, too."""
    given = fields.model_fields_set
    for own, field in type(fields).model_fields.items():
        if own not in given:
            continue
        name, value = prefix + (field.alias or own), getattr(fields, own)
        if isinstance(value, Options):
            yield from _asked(value, defaults, f"{name}.", with_unknown=with_unknown)
        elif (field.is_required() or value != field.default) and value != defaults.get(name, EMPTY):
            yield name
    for own, value in (fields.model_extra or {}).items():
        name = prefix + own
        may_ask = with_unknown and value is not None and not is_known(name)
        if (may_ask or not is_neutral(own, value)) and value != defaults.get(name, EMPTY):
            yield name
