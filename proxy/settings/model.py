"""The settings of one model.

The in-process engine's options are in `engine.protocol.options`, those of upstreams in `engine.upstream`.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, PrivateAttr, SecretStr, create_model

from engine.protocol.options import EngineChoices, EngineConfig, mapping
from engine.protocol.parts import ENGINES, MissingPart, load
from engine.protocol.system_messages import SystemMessages
from engine.upstream.address import UpstreamConfig
from engine.upstream.dialects import DIALECTS
from engine.upstream.limits import UpstreamOptions
from proxy.settings.groups import Settings, Without, group
from proxy.settings.values import File, Names

OPTIONAL_GROUPS = {
    "pool": "engine.upstream.pool.options:PoolOptions",
    "vllm": "engine.vllm.options:VLLMOptions",
}
"""Options of parts that may be left out."""
OPTIONS_OF: dict[str, type[BaseModel]] = {}
"""The options of the parts that are there."""
for _part, _path in OPTIONAL_GROUPS.items():
    with suppress(MissingPart):
        OPTIONS_OF[_part] = load(_path, _part)

if TYPE_CHECKING:
    EngineName = str

    class Parts(Settings):
        def __getattr__(self, part: str) -> Any: ...
else:
    EngineName = Literal["auto", *ENGINES.names()]
    _PARTS = {
        name: (options, Field(alias=group(name))) for name, options in {**DIALECTS, **OPTIONS_OF}.items()
    }
    Parts = create_model("Parts", __base__=Settings, **_PARTS)

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
NAMING = frozenset({"aliases", "policy", "only_guards"})
"""The options of a model that say what it is for. The only model of a server has none of them."""


def has_vllm() -> bool:
    """Whether vLLM is installed. It is not imported."""
    return find_spec("vllm") is not None


def _upstreams(value: Any) -> Any:
    """An upstream may be given by its URL alone. A URL may contain commas."""
    value = re.split(r",(?=\s*https?://)", value) if isinstance(value, str) else value
    value = [value] if isinstance(value, dict) else value
    return [{"url": one.strip()} if isinstance(one, str) else one for one in value or ()]


Upstreams = Annotated[list[UpstreamConfig], BeforeValidator(_upstreams), Field(repr=False)]


class ModelSettings(Settings, BaseModel):
    """One model: which engine runs it, and that engine's options."""

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
    upstreams: UpstreamOptions = Field(alias=group("upstreams"))
    """The bounds of upstreams' answers."""
    local: Annotated[EngineConfig, Without(EngineChoices.model_fields)] = Field(alias=group("local"))
    """The options of an engine that has the model in this process, and of its parsers."""
    parts: Parts = Field(alias=group("parts"))
    """The options of APIs of upstreams, and those of parts that may be left out. Each part has a group."""
    system_messages: SystemMessages = "auto"
    """Chats with more than one system message. keep: they go on as they are. fold: all of them become one, in
    front. auto: fold for models whose chat template, or upstreams that, refuse them otherwise"""
    aliases: Names = []
    """More names that requests may use for the model"""
    policy: str | None = None
    """The policy of its requests, if their keys name none"""
    only_guards: bool = False
    """Only guards use it: no request may name it, and it is not listed"""

    _given_names: tuple[str, ...] = PrivateAttr(())

    def named(self, names: Iterable[str], **changes: Any) -> Self:
        """The model with these names, which requests may use for it, its own first; none: any that the engine
        takes. `changes`: options with other values."""
        made = self.model_copy(update=changes)
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

    @property
    def has_vllm_options(self) -> bool:
        return "vllm" in OPTIONS_OF and any(value for _, value in self.parts.vllm)

    def checked(self) -> Self:
        """Raises `ValueError` if the engine lacks an option that it needs, or has one that it cannot obey."""
        local = self.local
        if self.engine in UPSTREAM_ENGINES and not self.upstream:
            raise ValueError(f"engine '{self.engine}' needs an upstream: --upstream URL")
        if self.engine in WITHOUT_MODEL and local.tokenizer is not None:
            raise ValueError(f"engine '{self.engine}' uses no tokenizer")
        if self.engine == "replay" and self.recordings is None:
            raise ValueError("engine 'replay' needs recordings: --recordings DIR")
        if self.engine not in WITH_LOGITS and (local.logits_processors or local.enable_test_logits_processor):
            reason = "has no logits of its own: it cannot run logits processors"
            raise ValueError(f"engine '{self.engine}' {reason}")
        if self.engine not in (AUTO, "local") and local.probes:
            reason = "does not show its activations: probes need the engine 'local'"
            raise ValueError(f"engine '{self.engine}' {reason}")
        if self.engine != "openai" and self.parts.openai.relay_fields:
            raise ValueError("relay_fields needs the engine 'openai': no other engine relays fields")
        if self.engine not in (AUTO, "vllm") and self.has_vllm_options:
            raise ValueError("options of vLLM need the engine 'vllm': --engine vllm")
        if self.has_vllm_options and local.probes:
            raise ValueError("options of vLLM need the engine 'vllm', and probes the engine 'local'")
        if self.engine in (AUTO, *ENGINES.shipped) and self.engine_options:
            raise ValueError(
                f"engine '{self.engine}' has options of its own: engine_options are for packages"
            )
        if self.only_guards and (self.aliases or self.policy):
            raise ValueError("only_guards: such a model has no aliases and no policy")
        return self
