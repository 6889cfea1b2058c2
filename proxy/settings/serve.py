"""The settings of `weir serve`: one definition for the command line, a YAML file and the environment.

An option that vLLM has too means the same as there. The in-process engine's options are in
`engine.protocol.options`, those of all hooks in `hooks.pipeline.options`. A field's docstring is its help.
"""

import argparse
import inspect
import logging
import os
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    CliApp,
    CliSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    YamlConfigSettingsSource,
)

from engine.protocol.help_texts import help_texts
from hooks.loading.loader import HookSpec
from proxy.settings.did_you_mean import did_you_mean, problems
from proxy.settings.directory import DirectorySettings
from proxy.settings.guard_api import GuardAPIs
from proxy.settings.model import OPTIONS_OF, WITH_LOGITS
from proxy.settings.network import AddressOptions, BrowserOptions, ConnectionOptions, TLSOptions
from proxy.settings.operator import AdminOptions
from proxy.settings.parser import CommandParser
from proxy.settings.requests import BodyOptions, CallerOptions
from proxy.settings.secrets import named_variables
from proxy.settings.storage import DecisionOptions, StateOptions, StoreOptions
from proxy.settings.telemetry import TelemetryOptions
from proxy.settings.values import File, Keys

logger = logging.getLogger("weir.proxy")


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


class AccessOptions(
    AddressOptions, TLSOptions, ConnectionOptions, BrowserOptions, BodyOptions, CallerOptions, StateOptions
):
    """Who may ask, how much, and how long."""


class ServeSettings(
    AccessOptions,
    AdminOptions,
    StoreOptions,
    DecisionOptions,
    TelemetryOptions,
    DirectorySettings,
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
            "probes": "probe",
            "trusted-forwarders": "trusted-forwarder",
            "cors-origins": "cors-origin",
        },
        extra="forbid",
    )

    config: File | None = None
    """YAML file with any of these options"""
    post_processor_hook: str | None = None
    """A hook as TensorRT-LLM names it: the same as one more --hook, in front of the others"""
    moderations: bool = False
    """Answer POST /v1/moderations with the hooks' decisions. Callers then learn what each hook does, and why;
    hooks in shadow mode included"""
    guard_api: Annotated[GuardAPIs, Field(repr=False)] = []
    """Protocol by which other gateways have the hooks judge texts: litellm, bedrock, agentgateway, fms, nemo
    or hooks; moderations with options; repeat. Callers then learn what hooks decide"""

    host: str = "127.0.0.1"
    """Address to listen on"""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """Port to listen on; 0 takes a free one"""
    api_key_file: File | None = None
    """File with keys of clients, one a line; it is read once"""
    api_key: Annotated[Keys, Field(validate_default=True)] = []
    """Key that clients must send; several may be given. Better in a file, or set as WEIR_API_KEY"""
    workers: Annotated[int, Field(ge=1)] = 1
    """Processes that serve the same port, one for each core (upstreams, replay, echo). --hook-workers and the
    limits of connections are for each of them"""
    keep_alive_interval: ClassVar[float] = 15.0
    """Seconds of silence after which a stream gets a comment line. Proxies wait for 30 seconds or more."""
    drain_delay: Annotated[float, Field(ge=0)] = 0.0
    """Seconds after SIGTERM for which the service still serves while /ready answers 503, so that a load
    balancer stops sending requests. --shutdown-timeout begins behind them"""
    shutdown_timeout: Annotated[float, Field(ge=0)] = 30.0
    """Seconds in which the service ends on SIGTERM. The last of them, 3 at most, end what still runs"""

    @property
    def guard_api_names(self) -> frozenset[str]:
        """The protocols by which others have the hooks judge texts."""
        named = frozenset(one.name for one in self.guard_api)
        return named | {"moderations"} if self.moderations else named

    @property
    def moderation_categories(self) -> dict[str, str]:
        """OpenAI's categories, by patterns of hooks' reasons."""
        return {pattern: name for one in self.guard_api for pattern, name in one.categories.items()}

    @property
    def hook_specs(self) -> list[HookSpec]:
        """The hooks that run for every request, in order."""
        first = [HookSpec(self.post_processor_hook)] if self.post_processor_hook else []
        return [*first, *self.hooks]

    @field_validator("api_key")
    @classmethod
    def _add_keys_of_the_file(cls, keys: list[SecretStr], others: ValidationInfo) -> list[SecretStr]:
        file = others.data.get("api_key_file")
        return keys if file is None else [*keys, *map(SecretStr, _keys_in(file))]

    @model_validator(mode="after")
    def _parts_fit(self) -> "ServeSettings":
        served = [model.engine for model in self.models.values() if not model.only_guards]
        for engine in served if self.models else [self.engine]:
            if self.workers > 1 and engine in WITH_LOGITS:
                raise ValueError(
                    f"workers: engine '{engine}' has its model in one process, which serves alone"
                )
        if self.policies and (self.hook_specs or self.allowed_hooks):
            raise ValueError("hooks: beside policies, hooks and allowed_hooks stand in the policies")
        if self.admin_port and self.admin_port == self.port and self._shares_an_address():
            raise ValueError(f"admin_port: {self.port} is the port of clients: give the operator another one")
        if not self.admin_ssl and self.admin_port is None:
            raise ValueError("admin_ssl: without --admin-port, the operator's API is on the port of clients")
        if self.models and self.served_model_name:
            raise ValueError("served_model_name: each of several models has its own name, and aliases")
        return self

    def _shares_an_address(self) -> bool:
        """Whether the operator's port is on an address that clients' port is on, too."""
        hosts = {self.host, self.admin_host}
        return len(hosts) == 1 or not hosts.isdisjoint(("0.0.0.0", "::", ""))

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
    given: dict[str, Any] = {}
    for group in OPTIONS_OF.values():
        if read := getattr(group, "from_command_line", None):
            # They are merged with those of the file, one by one.
            arguments, given = read(arguments)

    class Settings(ServeSettings):
        __doc__ = ServeSettings.__doc__
        model_config = SettingsConfigDict(yaml_file=_file_of(arguments))

    if any(argument.startswith(("-h", "--help")) for argument in arguments):
        for name, text in help_texts(ServeSettings).items():
            Settings.model_fields[name].description = text
    _check_variables()
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


def _check_variables() -> None:
    """Warns of misspelt variables. They are not an error, because other programs may use this prefix:
    Kubernetes does so for a service called weir."""
    known = [f"WEIR_{name.upper()}" for name in ServeSettings.model_fields]
    for name in os.environ:
        is_unknown = re.match("WEIR_(?!SERVICE_|PORT_)", name) and name not in known
        if is_unknown and (hint := did_you_mean(name, known)):
            logger.warning("the variable %s is no option%s", name, hint)


def _file_of(arguments: list[str]) -> str | None:
    """The YAML file that `arguments` or the environment name. Exits if it cannot be used."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    early.add_argument("--config", default=os.environ.get("WEIR_CONFIG"))
    file: str | None = early.parse_known_args(arguments)[0].config
    if not file:
        return None
    file = os.path.expanduser(file)
    if not Path(file).is_file():
        raise SystemExit(f"weir serve: there is no configuration file {file}")
    from proxy.settings.duplicates import duplicates  # PyYAML is imported for those who have a file
    from proxy.settings.yaml_file import read_yaml

    try:
        content, tree = read_yaml(Path(file))
    except ValueError as error:
        raise SystemExit(f"weir serve: {error}") from None
    for line, name in duplicates(tree):
        raise SystemExit(f"weir serve: {file} has the name {name} twice in one place (line {line})")
    if found := named_variables(content, ServeSettings):
        lines = "".join(f"\n  {fault}" for fault in found)
        raise SystemExit(f"weir serve: the settings are wrong{lines}")
    return file


def _add_argument(parser: argparse.ArgumentParser, *flags: str, **options: Any) -> argparse.Action:
    """`parser.add_argument` without the names of Python's types in the help."""
    metavar = str(options.get("metavar", "{"))
    if not metavar.startswith("{") or "[" in metavar:
        options["metavar"] = flags[-1].removeprefix("--").replace("-", "_").upper()
    text, _, value = str(options.get("help", "")).rpartition(" (default: ")
    if "(default:" in text or value in ("None)", "[])", "())", "{})"):
        options["help"] = text
    return parser.add_argument(*flags, **options)
