"""The treatment of each field of a request's JSON: an endpoint acts on some, refuses some, and leaves the
others to the engine."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict

from engine.protocol import RequestError
from engine.protocol.fields.asked import ENGINE_FIELDS, SAMPLING_FIELDS
from engine.protocol.fields.names import BINDING, DEFAULTS, LENGTH_LIMITS, engine_name, is_known, is_neutral
from engine.protocol.fields.support import FieldSupport, Treatment

Endpoint = Literal["chat", "completions", "responses", "messages"]

_OF_ENGINES = SAMPLING_FIELDS | ENGINE_FIELDS | BINDING | {"reasoning_effort", "verbosity"}
_OF_SOME_ENDPOINTS = SAMPLING_FIELDS | {"echo"}
"""Fields that an engine takes from an endpoint that has them, and from no other."""
_OF_OTHER_ENDPOINTS = frozenset({"messages", "prompt", "top_logprobs"})
"""Fields that an endpoint without them keeps from an upstream: Weir writes them itself."""

HEADER = "X-Weir-Ignored-Fields"
MAX_NAMES = 32
"""Names in the header."""
KEEPS_ENDS = "hooks are shown the end of the prompt as the text that the output continues"
_CHANGES_ENDS = re.compile("truncation|truncation_side|max_length|tokenizer_kwargs|[a-z_]+_token")
"""Arguments of a chat template that change how the prompt ends, where a server gives them to the tokenizer:
these cut it, or put a text in the place of a special token, such as the one behind a message."""
_NAME = re.compile(r"[A-Za-z_][\w.-]{0,63}", re.ASCII)


class RequestObject(BaseModel):
    """A JSON object inside a request's body. Fields that Weir does not know are kept as they are."""

    model_config = ConfigDict(strict=True, extra="allow")


class Options(RequestObject):
    """An object of settings. Each is a field with a dotted name, such as `text.format`."""


class EndpointFields(RequestObject):
    """The body of a request for a generation."""

    endpoint: ClassVar[Endpoint]
    refused: ClassVar[Mapping[str, str]] = {}
    """Fields that no engine gets, each with what the caller is told behind the name."""
    by_service: ClassVar[frozenset[str]] = frozenset()
    """Fields that need no engine here, though they do on another endpoint."""
    without_effect: ClassVar[frozenset[str]] = frozenset()
    """Fields that are read and change nothing."""

    @classmethod
    def treatment(cls, name: str, support: FieldSupport) -> Treatment:
        """The treatment of a field with the engine that has this `support`."""
        if cls._refusal(name) is not None:
            return Treatment.REFUSED
        engines, is_own = engine_name(cls.endpoint, name), name in names_of(cls) or name in LENGTH_LIMITS
        if name in cls.without_effect or not (is_own or cls.passes(name)):
            return Treatment.IGNORED
        if name in cls.by_service or (is_own and engines not in _OF_ENGINES):
            return Treatment.HONOURED
        return support.treatment(engines, cls.endpoint)

    @classmethod
    def passes(cls, name: str) -> bool:
        """Whether an engine gets a field that the endpoint does not have itself."""
        return "." not in name and name not in _OF_OTHER_ENDPOINTS

    @property
    def extra(self) -> dict[str, Any]:
        """Fields of the JSON that the endpoint does not read itself, for the engine."""
        return {
            name: value
            for name, value in (self.model_extra or {}).items()
            if self.passes(name)
            and name not in self.without_effect
            and name not in LENGTH_LIMITS
            and self._refusal(name) is None
        }

    def check_refused(self) -> None:
        """Raise `RequestError` for the first field that is refused, whichever engine runs."""
        for name in self._asked():
            if (reason := self._refusal(name)) is not None:
                raise RequestError(f"{name} {reason}.", param=name)

    def ignored(self, support: FieldSupport) -> list[str]:
        """The names of the fields that have no effect with this engine. At most one more than `MAX_NAMES`."""
        names: list[str] = []
        for name in self._asked(with_unknown=True):
            if self.treatment(name, support) is Treatment.IGNORED:
                names.append(name)
                if len(names) > MAX_NAMES:
                    break
        return names

    def _asked(self, *, with_unknown: bool = False) -> Iterator[str]:
        """The names of the fields that ask for something. `with_unknown`: a false or empty value of a field
        that Weir does not know may ask for something, too."""
        for name, value in _changed(self, with_unknown=with_unknown):
            default = DEFAULTS.get(engine_name(self.endpoint, name))
            if default is None or value != default:
                yield name

    @classmethod
    def _refusal(cls, name: str) -> str | None:
        is_missing = name in _OF_SOME_ENDPOINTS and name not in names_of(cls)
        return cls.refused.get(name, "is no field of this endpoint" if is_missing else None)


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
    """The names for the log. A name that Weir does not know is the caller's own words: it is `other`."""
    return ", ".join(dict.fromkeys(name if is_known(name) else "other" for name in names))


def ignored_header(names: list[str]) -> dict[str, str]:
    """The header that names ignored fields. Callers choose names of fields, so it holds few, and only those
    that look like names."""
    shown = [name if _NAME.fullmatch(name) else "other" for name in names[:MAX_NAMES]]
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


def options_of(cls: type[BaseModel], name: str) -> type[Options] | None:
    """The class of the field's object of settings. None for other fields."""
    for own, field in cls.model_fields.items():
        if (field.alias or own) == name:
            kinds = (field.annotation, *get_args(field.annotation))
            return next((one for one in kinds if isinstance(one, type) and issubclass(one, Options)), None)
    return None


def _changed(fields: BaseModel, prefix: str = "", *, with_unknown: bool = False) -> Iterator[tuple[str, Any]]:
    """The names and values of the fields that have another value than the default."""
    given = fields.model_fields_set
    for own, field in type(fields).model_fields.items():
        if own not in given:
            continue
        name, value = prefix + (field.alias or own), getattr(fields, own)
        if isinstance(value, Options):
            yield from _changed(value, f"{name}.", with_unknown=with_unknown)
        elif field.is_required() or value != field.default:
            yield name, value
    for name, value in (fields.model_extra or {}).items():
        may_ask = with_unknown and value is not None and not is_known(prefix + name)
        if may_ask or not is_neutral(name, value):
            yield prefix + name, value
