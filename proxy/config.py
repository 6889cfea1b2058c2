"""The settings of `weir serve`: one definition for the command line, a YAML file and the environment.

An option that vLLM has too means the same as there. A group of options is defined where it is used: the
in-process engine's in `engine.config`, those of all hooks in `hooks.pipeline.options`, those of a request's
body in `proxy.access.bodies`. The docstring of a field is its help.
"""

import argparse
import inspect
import json
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    CliApp,
    CliSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    YamlConfigSettingsSource,
)

from engine.backends.messages.options import MessagesOptions
from engine.backends.pool.options import PoolOptions, UpstreamConfig
from engine.backends.upstream.limits import UpstreamOptions
from engine.backends.vllm.options import VLLMOptions, from_command_line
from engine.config import EngineOptions
from hooks.loading.loader import HookSpec
from hooks.pipeline.options import PipelineOptions
from proxy.access.addresses import AddressOptions
from proxy.access.bodies import BodyOptions
from proxy.access.browser import BrowserOptions
from proxy.access.callers import CallerOptions
from proxy.access.connections import ConnectionOptions
from proxy.access.option_values import Keys, Names, parts
from proxy.admin.options import AdminOptions
from proxy.commands.parser import CommandParser
from proxy.decisions.options import DecisionOptions
from proxy.did_you_mean import problems
from proxy.page.options import PageOptions
from proxy.state.options import StateOptions
from proxy.store.options import StoreOptions
from proxy.telemetry.options import TelemetryOptions
from proxy.workers.options import WorkerOptions

Options = TypeVar("Options", bound=BaseModel)

UPSTREAM_ENGINES = ("openai", "messages")
"""Engines that ask upstream servers. Each is named by its API."""


def _hook(value: Any) -> Any:
    """A hook may be given by its import path alone."""
    return {"path": value} if isinstance(value, str) else value


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


Hooks = Annotated[list[HookSpec], BeforeValidator(lambda value: parts(value, _hook))]
Upstreams = Annotated[list[UpstreamConfig], BeforeValidator(_upstreams), Field(repr=False)]


def _keys_in(file: Path) -> list[str]:
    """The keys in a file, one a line; empty lines are no keys. Raises `ValueError`, which quotes no key."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"api_key_file: {file} cannot be read ({type(error).__name__})") from None
    keys = [key for line in lines if (key := line.strip())]
    if not keys:
        raise ValueError(f"api_key_file: there is no key in {file}, and anybody could use the service")
    return keys


class EngineChoice(BaseModel):
    """Which engine runs, and the options of the engines that are not in this process."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    config: Path | None = None
    """YAML file with any of these options"""
    engine: Literal["local", "vllm", "openai", "messages", "replay", "echo"] = "local"
    """local: a model in this process. vllm: vLLM's engine. openai, messages: an upstream server, by its API.
    replay: recorded streams. echo: the prompt back"""
    served_model_name: Names = []
    """Names that requests may use for the model (default: the model's)"""
    upstream: Upstreams = []
    """Base URL of a server, as its API's clients have it; repeat for a pool of them (upstreams)"""
    upstream_model: str | None = None
    """Model name to ask upstreams for (upstreams)"""
    upstream_api_key: SecretStr | None = None
    """Key for upstreams; better set as WEIR_UPSTREAM_API_KEY"""
    recordings: Path | None = None
    """Folder of recorded streams (replay)"""
    replay_speed: Annotated[float, Field(ge=0)] = 0.0
    """1: as fast as recorded; 0: without waiting (replay)"""
    record: Path | None = None
    """Folder to keep every request and the model's answer in, before any hook changes it"""
    record_max_bytes: Annotated[int, Field(ge=1)] = 1024**3
    """Bytes of recordings to keep; the oldest are removed (record)"""


class AccessOptions(
    AddressOptions, ConnectionOptions, BrowserOptions, BodyOptions, CallerOptions, StateOptions, PageOptions
):
    """Who may ask, how much, and how long."""


class ServeSettings(
    PipelineOptions,
    VLLMOptions,
    EngineOptions,
    AccessOptions,
    AdminOptions,
    StoreOptions,
    DecisionOptions,
    TelemetryOptions,
    WorkerOptions,
    MessagesOptions,
    UpstreamOptions,
    PoolOptions,
    EngineChoice,
    BaseSettings,
):
    """Serve a model behind guardrail hooks, on an OpenAI-compatible API.

    Every option can stand in the YAML file named by --config (underscores for dashes) and in the
    environment (WEIR_MAX_MODEL_LEN for --max-model-len). The command line wins over the environment, the
    environment over the file.
    """

    model_config = SettingsConfigDict(
        env_prefix="WEIR_",
        enable_decoding=False,  # the environment and the command line give lists with commas, not as JSON
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
        cli_shortcuts={
            "hooks": "hook",
            "allowed-hooks": "allowed-hook",
            "logits-processors": "logits-processor",
            "trusted-forwarders": "trusted-forwarder",
            "cors-origins": "cors-origin",
        },
        extra="forbid",
    )

    hooks: Hooks = []
    """Guardrail hook: pkg.module.Class or path/to/file.py:Class; repeat in order"""
    post_processor_hook: str | None = None
    """A hook as TensorRT-LLM names it: the same as one more --hook, in front of the others"""
    allowed_hooks: Hooks = []
    """Hook that a request may name in its field hooks, to run beside the others; repeat"""
    hook_workers: Annotated[int, Field(ge=0)] = 0
    """Processes that hooks run in (0: in the service's own)"""
    moderations: bool = False
    """Answer POST /v1/moderations with the hooks' decisions. Callers then learn what each hook does, and why;
    hooks in shadow mode included"""
    skip_tokenizer_init: bool = False
    """Refused: hooks need text, and text needs a tokenizer"""

    host: str = "127.0.0.1"
    """Address to listen on"""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """Port to listen on; 0 takes a free one"""
    api_key_file: Path | None = None
    """File with keys of clients, one a line; it is read once"""
    api_key: Annotated[Keys, Field(validate_default=True)] = []
    """Key that clients must send; several may be given. Better in a file, or set as WEIR_API_KEY"""
    keep_alive_interval: Annotated[float, Field(gt=0)] = 15.0
    """Seconds of silence after which a stream gets a comment line"""
    shutdown_timeout: Annotated[float, Field(ge=0)] = 30.0
    """Seconds in which the service ends on SIGTERM. The last of them, 3 at most, end what still runs"""

    @property
    def hook_specs(self) -> list[HookSpec]:
        """The hooks that run for every request, in order."""
        first = [HookSpec(self.post_processor_hook)] if self.post_processor_hook else []
        return [*first, *self.hooks]

    def options(self, group: type[Options]) -> Options:
        """The options of one group, for the part that defines and uses it."""
        return group(**{name: getattr(self, name) for name in group.model_fields})

    @field_validator("logits_processors", mode="before")
    @classmethod
    def _read_logits_processors(cls, value: Any) -> Any:
        return parts(value, _logits_processor)

    @field_validator("api_key")
    @classmethod
    def _add_keys_of_the_file(cls, keys: list[SecretStr], others: ValidationInfo) -> list[SecretStr]:
        file = others.data.get("api_key_file")
        return keys if file is None else [*keys, *map(SecretStr, _keys_in(file))]

    @model_validator(mode="after")
    def _engine_has_what_it_needs(self) -> "ServeSettings":
        if self.skip_tokenizer_init:
            raise ValueError("skip_tokenizer_init would leave hooks without text to look at: take it out")
        if self.engine in UPSTREAM_ENGINES and not self.upstream:
            raise ValueError(f"engine '{self.engine}' needs an upstream: --upstream URL")
        if self.engine in ("replay", "echo") and self.tokenizer is not None:
            raise ValueError(f"engine '{self.engine}' uses no tokenizer")
        if self.engine == "replay" and self.recordings is None:
            raise ValueError("engine 'replay' needs recordings: --recordings DIR")
        if self.workers > 1 and self.engine not in (*UPSTREAM_ENGINES, "replay", "echo"):
            raise ValueError(
                f"workers: engine '{self.engine}' has its model in one process, which serves alone"
            )
        if self.engine not in ("local", "vllm") and (
            self.logits_processors or self.enable_test_logits_processor
        ):
            reason = "has no logits of its own: it cannot run logits processors"
            raise ValueError(f"engine '{self.engine}' {reason}")
        if self.engine != "vllm" and (self.vllm or self.vllm_prefill or self.vllm_lora_modules):
            raise ValueError("options of vLLM need the engine 'vllm': --engine vllm")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, YamlConfigSettingsSource(settings_cls)


def load_settings(arguments: list[str]) -> ServeSettings:
    """Settings from the command line's `arguments`, the environment and the YAML file that these name.

    Exits with a reason if the settings cannot be read. Prints the help and exits for `--help`.
    """
    # As with vLLM, `--max_model_len` is `--max-model-len`.
    arguments = [re.sub("^--[a-z_]+", lambda m: m[0].replace("_", "-"), argument) for argument in arguments]
    arguments, for_vllm = from_command_line(arguments)
    # They are merged with those of the file, one by one.
    for_vllm = {**_vllm_in_environment(), **for_vllm}
    given: dict[str, Any] = {"vllm": for_vllm} if for_vllm else {}

    class Settings(ServeSettings):
        __doc__ = ServeSettings.__doc__
        model_config = SettingsConfigDict(yaml_file=_file_of(arguments))

    try:
        return CliApp.run(
            Settings,
            cli_args=arguments,
            cli_settings_source=CliSettingsSource(
                Settings,
                root_parser=CommandParser(
                    prog="weir serve",
                    description=inspect.cleandoc(ServeSettings.__doc__ or ""),
                    formatter_class=argparse.RawDescriptionHelpFormatter,
                    allow_abbrev=False,
                ),
                add_argument_method=_add_argument,
            ),
            **given,
        )
    except ValidationError as error:
        lines = "".join(f"\n  {problem}" for problem in problems(error, ServeSettings))
        raise SystemExit(f"weir serve: the settings are wrong{lines}") from None
    except SettingsError as error:
        raise SystemExit(f"weir serve: the settings are wrong\n  {error}") from None


def _vllm_in_environment() -> dict[str, Any]:
    """vLLM's arguments in WEIR_VLLM. If it cannot be read, the settings say so."""
    try:
        value = json.loads(os.environ.get("WEIR_VLLM", "{}"))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _file_of(arguments: list[str]) -> str | None:
    """The YAML file that `arguments` or the environment name. Exits if it cannot be used."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    early.add_argument("--config", default=os.environ.get("WEIR_CONFIG"))
    file: str | None = early.parse_known_args(arguments)[0].config
    if not file:
        return None
    if not Path(file).is_file():
        raise SystemExit(f"weir serve: there is no configuration file {file}")
    try:
        content = yaml.safe_load(Path(file).read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        # The error itself quotes the line, which may hold a key.
        mark = getattr(error, "problem_mark", None)
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise SystemExit(f"weir serve: {file} is not YAML{place}") from None
    if not isinstance(content, dict | None):
        raise SystemExit(f"weir serve: {file} must hold options by name")
    return file


def _add_argument(parser: argparse.ArgumentParser, *flags: str, **options: Any) -> argparse.Action:
    """`parser.add_argument` without the names of Python's types in the help."""
    metavar = str(options.get("metavar", "{"))
    if not metavar.startswith("{") or "[" in metavar:
        options["metavar"] = flags[-1].removeprefix("--").replace("-", "_").upper()
    text, _, value = str(options.get("help", "")).rpartition(" (default: ")
    if "(default:" in text or value in ("None)", "[])", "())"):
        options["help"] = text
    return parser.add_argument(*flags, **options)
