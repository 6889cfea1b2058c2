"""Finds, checks and builds logits processors by name, at start (contract 7.3)."""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from typing import Any, Literal, get_args

from pydantic import BaseModel, ValidationError

from engine.protocol import SamplingParams
from engine.protocol.import_path import ImportPathError, describe, find_class
from engine.protocol.options import LogitsProcessorConfig
from engine.sampling.logits_processors.api import Context, Kind, NoParams, Req, TokenIds
from engine.sampling.logits_processors.builtin import SHORT_NAMES
from engine.sampling.logits_processors.names import ENTRY_POINTS
from engine.sampling.logits_processors.started import ProcessorEntry, StartedProcessor

_NAME = re.compile(r"[A-Za-z_][\w.-]*")

Form = Literal["row", "batch", "sampling"]
"""sampling: the processor only sets options of the sampler's own stages (`min_tokens`, `logit_bias`)."""


class ProcessorLoadError(ValueError):
    """A processor cannot be found, or its class has no valid form. The server must not start without it."""


class ParamsError(ValueError):
    """Parameters that a processor does not take. `at` says which one, as `.name[0]`."""

    def __init__(self, at: str, reason: str) -> None:
        super().__init__(reason)
        self.at = at


@dataclass(frozen=True, slots=True, eq=False)
class RegisteredProcessor:
    """A processor that is ready to be started for sequences."""

    config: LogitsProcessorConfig
    cls: type
    entry: ProcessorEntry
    context: Context
    shared: Any = None
    """The result of its `prepare`."""

    @property
    def sampling(self) -> Callable[[Any, SamplingParams], SamplingParams] | None:
        """In the sampling form: changes a request's sampling, given the processor's parameters."""
        return getattr(self.cls, "sampling", None)

    def unknown(self, names: Iterable[str]) -> list[str]:
        """The names that none of its parameters has."""
        return _unknown(_params_model(self.cls), names)

    def validate(self, params: Mapping[str, Any]) -> BaseModel:
        """Raises `ParamsError`."""
        return validate_params(self.cls, params, self.context)

    def try_params(self, params: Mapping[str, Any]) -> None:
        """Make sure that each sequence can get the processor with these. Raises `ProcessorLoadError`."""
        with _failing_to_load(self.config):
            valid = self.validate(params)
            if form_of(self.cls) == "row":
                self.build(params=valid)

    def start(self, params: BaseModel, token_ids: TokenIds) -> StartedProcessor:
        """Start it for the sequence that has these tokens. Raises any exception of its `__init__`."""
        if self.entry.batch is None:
            return StartedProcessor(self.entry, call=self.build(params=params))
        req = Req(token_ids, token_ids.num_prompt_tokens)
        return StartedProcessor(self.entry, params={**params.model_dump(), "__req__": req})

    def build(self, **offered: Any) -> Any:
        """Make an instance. Raises any exception of its `__init__`."""
        return self.cls(**self.arguments(**offered))

    def arguments(self, **offered: Any) -> dict[str, Any]:
        """The arguments for `__init__`: the configured ones, and the offered ones that it names."""
        parameters = inspect.signature(self.cls).parameters
        offered |= {"context": self.context, "shared": self.shared}
        configured = {} if hasattr(self.cls, "prepare") else self.config.args
        return {**configured, **{name: value for name, value in offered.items() if name in parameters}}


def validate_params(cls: type, params: Mapping[str, Any], context: Context | None) -> BaseModel:
    """The parameters as the processor's `Params`. `context` None: the model is not known, and nothing is
    checked that depends on it. Raises `ParamsError`."""
    model = _params_model(cls)
    for name in _unknown(model, params):
        raise ParamsError(f".{name}", "unknown parameter")
    try:
        return model.model_validate(dict(params), context=context)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        parts = [part for part in first["loc"] if part != "[key]"]
        at = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
        raise ParamsError(at, first["msg"].removeprefix("Value error, ")) from error


def _params_model(cls: type) -> type[BaseModel]:
    model: type[BaseModel] = getattr(cls, "Params", NoParams)
    return model


def _unknown(model: type[BaseModel], names: Iterable[str]) -> list[str]:
    if model.model_config.get("extra") == "allow":
        return []
    aliases = {field.alias for field in model.model_fields.values()}
    return [name for name in names if name not in model.model_fields and name not in aliases]


def find_processors(configs: Iterable[LogitsProcessorConfig]) -> list[tuple[LogitsProcessorConfig, type]]:
    """The classes of the configured processors, then of installed packages. Raises `ProcessorLoadError`."""
    installed = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
    paths = SHORT_NAMES | installed
    configs = list(configs)
    used = {config.name for config in configs} | {config.path for config in configs}
    configs += [LogitsProcessorConfig(name, name) for name in sorted(installed) if name not in used]
    for name in (names := [config.name for config in configs]):
        if not _NAME.fullmatch(name):
            raise ProcessorLoadError(f"{name!r} cannot be the name of a logits processor")
        if names.count(name) > 1:
            raise ProcessorLoadError(f"two logits processors are called {name!r}")
    return [(config, _find(config, paths.get(config.path, config.path))) for config in configs]


def _find(config: LogitsProcessorConfig, path: str) -> type:
    try:
        cls = find_class(path)
        form_of(cls)
        kind_of(cls)
        model = getattr(cls, "Params", NoParams)
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            raise ProcessorLoadError("has Params that are not a pydantic model")
        if config.params and not config.mandatory:
            raise ProcessorLoadError("has params, but is not mandatory: a request gives its own params")
    except (ImportPathError, ProcessorLoadError) as error:
        raise ProcessorLoadError(f"logits processor {config.name!r} ({config.path}) {error}") from error
    return cls


def register(config: LogitsProcessorConfig, cls: type, rank: int, context: Context) -> RegisteredProcessor:
    """Build all that requests share, and try the arguments of every request. Raises `ProcessorLoadError`."""
    prepare = getattr(cls, "prepare", None)
    with _failing_to_load(config):
        shared = prepare(context, **config.args) if prepare else None
        entry = ProcessorEntry(config.name, kind_of(cls), rank)
        registered = RegisteredProcessor(config, cls, entry, context, shared)
        form = form_of(cls)
        if form == "row":
            inspect.signature(cls).bind(**registered.arguments(params=None))
        if form == "batch":
            registered = replace(registered, entry=replace(entry, batch=registered.build()))
    if config.mandatory:
        registered.try_params(config.params)
    return registered


@contextmanager
def _failing_to_load(config: LogitsProcessorConfig) -> Iterator[None]:
    """Around a processor's own code at start: any exception becomes a `ProcessorLoadError`."""
    try:
        yield
    except ParamsError as error:
        raise ProcessorLoadError(f"logits processor {config.name!r}: params{error.at}: {error}") from error
    except (Exception, SystemExit) as error:
        raise ProcessorLoadError(
            f"logits processor {config.name!r} cannot be built: {describe(error)}"
        ) from error


def kind_of(cls: type) -> Kind:
    """Raises `ProcessorLoadError` for an unknown kind."""
    kind: Kind = getattr(cls, "kind", "shaper")
    if kind not in get_args(Kind):
        raise ProcessorLoadError(f"is of kind {kind!r}, which must be one of {', '.join(get_args(Kind))}")
    return kind


def form_of(cls: type) -> Form:
    """The form, found by the names of the call's parameters. Raises `ProcessorLoadError` if none matches."""
    call = inspect.getattr_static(cls, "__call__", None)
    names = list(inspect.signature(call).parameters)[1:] if inspect.isfunction(call) else []
    if not inspect.iscoroutinefunction(call) and len(names) == 2:
        if names == ["input_ids", "logits"]:
            return "row"
        if names[0] == "logits":
            return "batch"
    if callable(getattr(cls, "sampling", None)):
        return "sampling"
    raise ProcessorLoadError(
        "has no plain __call__(self, input_ids, logits) or __call__(self, logits, params)"
    )
