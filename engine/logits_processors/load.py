"""Logits processors by name: found, checked and built at start (contract 7.3)."""

import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Literal, get_args

from pydantic import BaseModel, ValidationError

from engine.config import LogitsProcessorConfig
from engine.import_path import ImportPathError, describe, find_class
from engine.logits_processors.api import Context, Kind, NoParams, Req
from engine.logits_processors.builtin import SHORT_NAMES
from engine.logits_processors.run import Entry, Started
from engine.sequence import Sequence

ENTRY_POINTS = "weir.logits_processors"
"""By which installed packages register processors under names of their own."""
_NAME = re.compile(r"[A-Za-z_][\w.-]*")


class ProcessorLoadError(ValueError):
    """A logits processor cannot be found, or is none: the server must not start without it."""


@dataclass(frozen=True, slots=True, eq=False)
class Registered:
    """A processor, ready to be given to sequences."""

    config: LogitsProcessorConfig
    cls: type
    entry: Entry
    context: Context

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def params_model(self) -> type[BaseModel]:
        model: type[BaseModel] = getattr(self.cls, "Params", NoParams)
        return model

    def takes(self, names: Iterable[str]) -> bool:
        """Whether it has parameters of these names."""
        takes_any = self.params_model.model_config.get("extra") == "allow"
        return takes_any or set(names) <= self.params_model.model_fields.keys()

    def validate(self, params: Mapping[str, Any]) -> BaseModel:
        """Raises `ValidationError`."""
        return self.params_model.model_validate(dict(params), context=self.context)

    def start(self, seq: Sequence, params: BaseModel) -> Started:
        """A fresh one, for a sequence. Raises what its `__init__` does."""
        if self.entry.batch is None:
            return Started(self.entry, call=self.build(params))
        req = Req(seq.token_ids, seq.num_prompt_tokens)
        return Started(self.entry, params={**params.model_dump(), "__req__": req})

    def build(self, params: BaseModel) -> Any:
        """An instance of the row form. Raises what its `__init__` does."""
        return self.cls(**_arguments(self.cls, self.config, params=params, context=self.context))


def load(configs: Iterable[LogitsProcessorConfig], context: Context) -> dict[str, Registered]:
    """Those configured, then those of installed packages, by name, in order. Raises `ProcessorLoadError`."""
    installed = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
    paths = SHORT_NAMES | installed
    found = list(configs)
    used = {config.name for config in found} | {config.path for config in found}
    found += [LogitsProcessorConfig(name, name) for name in sorted(installed) if name not in used]
    registered: dict[str, Registered] = {}
    for rank, config in enumerate(found):
        if not _NAME.fullmatch(config.name):
            raise ProcessorLoadError(f"{config.name!r} is no name for a logits processor")
        if config.name in registered:
            raise ProcessorLoadError(f"two logits processors are called {config.name!r}")
        try:
            cls = find_class(paths.get(config.path, config.path))
            registered[config.name] = register(config, cls, rank, context)
        except (ImportPathError, ProcessorLoadError) as error:
            raise ProcessorLoadError(f"logits processor {config.name!r} ({config.path}) {error}") from error
    return registered


def register(config: LogitsProcessorConfig, cls: type, rank: int, context: Context) -> Registered:
    """Check the class, and build what there is one of. Raises `ProcessorLoadError`."""
    kind, is_batch = kind_of(cls), form_of(cls) == "batch"
    model = getattr(cls, "Params", NoParams)
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise ProcessorLoadError("has Params that are no pydantic model")
    try:
        if check := getattr(cls, "check", None):
            check(context, **config.args)
        given = {"context": context} if is_batch else {"context": context, "params": None}
        arguments = _arguments(cls, config, **given)
        inspect.signature(cls).bind(**arguments)
        instance = cls(**arguments) if is_batch else None
    except (Exception, SystemExit) as error:
        raise ProcessorLoadError(f"cannot be used: {describe(error)}") from error
    found = Registered(config, cls, Entry(config.name, kind, rank, instance), context)
    if config.mandatory:
        _try(found)
    elif config.params:
        raise ProcessorLoadError("has params, which are for requests to give unless it is mandatory")
    return found


def kind_of(cls: type) -> Kind:
    """Raises `ProcessorLoadError` for one that there is not."""
    kind: Kind = getattr(cls, "kind", "shaper")
    if kind not in get_args(Kind):
        raise ProcessorLoadError(f"is of kind {kind!r}, which must be one of {', '.join(get_args(Kind))}")
    return kind


def form_of(cls: type) -> Literal["row", "batch"]:
    """By the names of what it is called with. Raises `ProcessorLoadError` if it has neither form."""
    call = inspect.getattr_static(cls, "__call__", None)
    names = list(inspect.signature(call).parameters)[1:] if inspect.isfunction(call) else []
    if not inspect.iscoroutinefunction(call) and len(names) == 2:
        if names == ["input_ids", "logits"]:
            return "row"
        if names[0] == "logits":
            return "batch"
    raise ProcessorLoadError(
        "has no plain __call__(self, input_ids, logits) or __call__(self, logits, params)"
    )


def _try(found: Registered) -> None:
    """Build a mandatory one, to fail now rather than at every request. Raises `ProcessorLoadError`."""
    try:
        params = found.validate(found.config.params)
        if found.entry.batch is None:
            found.build(params)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = "".join(f".{part}" for part in first["loc"])
        raise ProcessorLoadError(f"has wrong params{where}: {first['msg']}") from error
    except (Exception, SystemExit) as error:
        raise ProcessorLoadError(f"could not be built: {describe(error)}") from error


def _arguments(cls: type, config: LogitsProcessorConfig, **offered: Any) -> dict[str, Any]:
    """For its `__init__`: what is configured, and of what is offered that which it asks for by name."""
    asked = inspect.signature(cls).parameters
    return {**config.args, **{name: value for name, value in offered.items() if name in asked}}
