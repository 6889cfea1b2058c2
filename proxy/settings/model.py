"""The settings of one model: which engine runs it, and that engine's options.

The in-process engine's options are in `engine.protocol.options`, those of upstreams in `engine.upstream`.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from types import new_class
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    field_validator,
    model_validator,
)

from engine.protocol.engines import ENGINES
from engine.protocol.options import EngineOptions, mapping
from engine.protocol.parts import MissingPart, load
from engine.upstream.address import UpstreamConfig
from engine.upstream.dialects import DIALECTS
from engine.upstream.limits import UpstreamOptions
from engine.upstream.openai.options import OpenAIOptions
from proxy.settings.values import File, Names, parts

OPTIONAL_GROUPS = {
    "vllm": "engine.vllm.options:VLLMOptions",
    "pool": "engine.upstream.pool.options:PoolOptions",
}
"""Options of parts that may be left out."""


def _groups() -> Iterator[tuple[str, type[BaseModel]]]:
    for name, path in OPTIONAL_GROUPS.items():
        with suppress(MissingPart):
            yield name, load(path, name)


OPTIONS_OF = dict(_groups())
"""The options of the parts that are there."""

if TYPE_CHECKING:
    EngineName = str

    class OwnOptions(BaseModel):
        def __getattr__(self, option: str) -> Any: ...
else:
    EngineName = Literal["auto", *ENGINES.names()]
    OwnOptions = new_class("OwnOptions", (*OPTIONS_OF.values(), *reversed(DIALECTS.values())))

Options = TypeVar("Options", bound=BaseModel)

ANY = "default"
"""The name of a model that requests may call by any name."""

UPSTREAM_ENGINES = tuple(DIALECTS)
"""Engines that ask upstream servers. Each is named by its API."""
OF_VLLM = frozenset(OPTIONS_OF["vllm"].model_fields if "vllm" in OPTIONS_OF else ())
"""The options that only vLLM has."""
WITHOUT_MODEL = ("replay", "echo", "none")
"""Engines that ask no model. They have no tokenizer."""
AUTO = "auto"
"""The machine chooses: `local` or `vllm`."""
WITH_LOGITS = (AUTO, "local", "vllm")
"""Engines that have a model in their process. They run logits processors, in one process."""


def has_vllm() -> bool:
    """Whether vLLM is installed. It is not imported."""
    return find_spec("vllm") is not None


def _logits_processor(value: Any) -> Any:
    """A processor may be given as `name=path`. One that ships, or is installed, may be given by its name."""
    if isinstance(value, str):
        name, _, path = value.partition("=")
        return {"name": name, "path": path or name}
    if isinstance(value, dict) and "path" not in value and "name" in value:
        return {**value, "path": value["name"]}
    return value


def _upstreams(value: Any) -> Any:
    """An upstream may be given by its URL alone. A URL may contain commas."""
    value = re.split(r",(?=\s*https?://)", value) if isinstance(value, str) else value
    value = [value] if isinstance(value, dict) else value
    return [{"url": one.strip()} if isinstance(one, str) else one for one in value or ()]


Upstreams = Annotated[list[UpstreamConfig], BeforeValidator(_upstreams), Field(repr=False)]


class EngineChoice(BaseModel):
    """Which engine runs, and the options of the engines that are not in this process."""

    model_config = ConfigDict(defer_build=True)

    engine: EngineName = "auto"
    """auto: vllm on a GPU where vLLM is installed, else local; the log says why. local: a model in this
    process, on Weir's own code. vllm: vLLM's engine. openai, messages: an upstream server, by its API.
    replay: recorded streams. echo: the prompt back. none: none, for a server whose hooks judge others' texts
    (guard_api). A package may add its own"""
    engine_options: Annotated[dict[str, Any], BeforeValidator(mapping), Field(repr=False)] = {}
    """Options of an engine that a package adds, as JSON or in YAML"""
    upstream: Upstreams = []
    """Base URL of a server, as its API's clients have it; repeat for a pool of them (upstreams)"""
    upstream_model: str | None = None
    """Model name to ask upstreams for (upstreams)"""
    upstream_api_key: SecretStr | None = None
    """Key for upstreams; better set as WEIR_UPSTREAM_API_KEY"""
    recordings: File | None = None
    """Folder of recorded streams (replay)"""
    replay_speed: Annotated[float, Field(ge=0)] = 0.0
    """1: as fast as recorded; 0: without waiting (replay)"""
    record: File | None = None
    """Folder to keep every request and the model's answer in, before any hook changes it"""
    record_max_bytes: Annotated[int, Field(ge=1)] = 1024**3
    """Bytes of recordings to keep; the oldest are removed (record)"""
    record_max_age: Annotated[float | None, Field(gt=0)] = None
    """Days after which a recording is removed (record)"""


class EngineSettings(OwnOptions, EngineOptions, UpstreamOptions, EngineChoice):
    """One model's engine and its options."""

    def options(self, group: type[Options]) -> Options:
        """The options of one group, for the part that defines and uses it."""
        return group(**{name: getattr(self, name) for name in group.model_fields})

    @field_validator("logits_processors", mode="before")
    @classmethod
    def _read_logits_processors(cls, value: Any) -> Any:
        return parts(value, _logits_processor)

    @field_validator("probes", "relay_fields", mode="before")
    @classmethod
    def _read_names(cls, value: Any) -> Any:
        return parts(value)

    @model_validator(mode="after")
    def _engine_has_what_it_needs(self) -> Self:
        self.check_engine()
        return self

    def check_engine(self) -> None:
        """Raise `ValueError` if the engine lacks an option that it needs, or has one that it cannot obey."""
        if self.engine in UPSTREAM_ENGINES and not self.upstream:
            raise ValueError(f"engine '{self.engine}' needs an upstream: --upstream URL")
        if self.engine in WITHOUT_MODEL and self.tokenizer is not None:
            raise ValueError(f"engine '{self.engine}' uses no tokenizer")
        if self.engine == "replay" and self.recordings is None:
            raise ValueError("engine 'replay' needs recordings: --recordings DIR")
        if self.engine not in WITH_LOGITS and (self.logits_processors or self.enable_test_logits_processor):
            reason = "has no logits of its own: it cannot run logits processors"
            raise ValueError(f"engine '{self.engine}' {reason}")
        if self.engine not in (AUTO, "local") and self.probes:
            reason = "does not show its activations: probes need the engine 'local'"
            raise ValueError(f"engine '{self.engine}' {reason}")
        if self.engine != "openai" and self.options(OpenAIOptions).relay_fields:
            raise ValueError("relay_fields needs the engine 'openai': no other engine relays fields")
        of_vllm = any(getattr(self, name) for name in OF_VLLM)
        if self.engine not in (AUTO, "vllm") and of_vllm:
            raise ValueError("options of vLLM need the engine 'vllm': --engine vllm")
        if of_vllm and self.probes:
            raise ValueError("options of vLLM need the engine 'vllm', and probes the engine 'local'")
        if self.engine in (AUTO, *ENGINES.shipped) and self.engine_options:
            raise ValueError(
                f"engine '{self.engine}' has options of its own: engine_options are for packages"
            )


class ModelSettings(EngineSettings, BaseModel):
    """One of several models."""

    aliases: Names = []
    """More names that requests may use for the model"""
    policy: str | None = None
    """The policy of its requests, if their keys name none"""
    only_guards: bool = False
    """Only guards use it: no request may name it, and it is not listed"""

    _given_names: tuple[str, ...] = PrivateAttr(())

    @staticmethod
    def of(settings: EngineSettings, names: Iterable[str], **changes: Any) -> "ModelSettings":
        """The model with these options. `names`: those that requests may use for it, its own first; none: any
        that the engine takes. `changes`: options with other values."""
        kept = ModelSettings.model_fields.keys() - changes.keys()
        made = ModelSettings.model_construct(
            _fields_set=(settings.model_fields_set & kept) | changes.keys(),
            **{name: getattr(settings, name) for name in kept if hasattr(settings, name)},
            **changes,
        )
        made._given_names = tuple(names)
        return made

    @property
    def given_names(self) -> tuple[str, ...]:
        return self._given_names

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which policies, metrics and logs know the model."""
        return self._given_names or (ANY,)

    @property
    def name(self) -> str:
        return self.names[0]

    @model_validator(mode="after")
    def _guards_need_one_name(self) -> Self:
        if self.only_guards and (self.aliases or self.policy):
            raise ValueError("only_guards: such a model has no aliases and no policy")
        return self
