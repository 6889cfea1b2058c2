"""The settings of `weir serve`: one definition for the command line, a YAML file and the environment.

An option that vLLM has too means the same as there. The in-process engine's options are in
`engine.protocol.options`, those of all hooks in `hooks.loading.options`. A field's docstring is its help.
"""

import argparse
import inspect
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

from pydantic import (
    BaseModel,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from hooks.loading.loader import HookSpec
from proxy.settings.approvals import ApprovalOptions
from proxy.settings.did_you_mean import did_you_mean, members, problems
from proxy.settings.directory import DirectorySettings
from proxy.settings.groups import help_texts, options_of
from proxy.settings.guard_api import GuardAPIs
from proxy.settings.model import OPTIONS_OF, WITH_LOGITS
from proxy.settings.network import AddressOptions, BrowserOptions, ConnectionOptions, TLSOptions
from proxy.settings.operator import AdminOptions
from proxy.settings.parser import CommandParser
from proxy.settings.requests import BodyOptions, CallerOptions
from proxy.settings.secrets import named_variables
from proxy.settings.storage import AuditOptions, DecisionOptions, ReceiptOptions, StateOptions, StoreOptions
from proxy.settings.telemetry import TelemetryOptions
from proxy.settings.usage import UsageOptions
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


class ServeSettings(
    AddressOptions,
    TLSOptions,
    ConnectionOptions,
    BrowserOptions,
    BodyOptions,
    CallerOptions,
    StateOptions,
    AdminOptions,
    ApprovalOptions,
    StoreOptions,
    DecisionOptions,
    AuditOptions,
    ReceiptOptions,
    UsageOptions,
    TelemetryOptions,
    DirectorySettings,
    BaseModel,
):
    """Serve a model behind guardrail hooks, on an OpenAI-compatible API.

    Every option can be in the YAML file named by --config (underscores for dashes) and in the
    environment (WEIR_MAX_MODEL_LEN for --max-model-len). The command line wins over the environment, the
    environment over the file.
    """

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
    """Processes that serve the same port, one for each core. One more has the models on this machine.
    --hook-workers and the limits of connections are for each of them"""
    keep_alive_interval: ClassVar[float] = 15.0
    """Seconds of silence after which a stream gets a comment line. Proxies wait for 30 seconds or more."""
    drain_delay: Annotated[float, Field(ge=0)] = 0.0
    """Seconds after SIGTERM for which the service still serves while /ready answers 503, so that a load
    balancer stops sending requests. --shutdown-timeout begins after them"""
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
        return [*first, *self.base_policy.hooks]

    @field_validator("api_key")
    @classmethod
    def _add_keys_of_the_file(cls, keys: list[SecretStr], others: ValidationInfo) -> list[SecretStr]:
        file = others.data.get("api_key_file")
        return keys if file is None else [*keys, *map(SecretStr, _keys_in(file))]

    @model_validator(mode="after")
    def _parts_fit(self) -> "ServeSettings":
        if not self.models:  # else these options are defaults only
            self.base_model.checked()
        if self.policies and (self.hook_specs or self.base_policy.allowed_hooks):
            raise ValueError("hooks: with policies, hooks and allowed_hooks belong in the policies")
        if self.admin_port and self.admin_port == self.port and self._shares_an_address():
            raise ValueError(f"admin_port: {self.port} is the port of clients: give the operator another one")
        if not self.admin_ssl and self.admin_port is None:
            raise ValueError("admin_ssl: without --admin-port, the operator's API is on the port of clients")
        if self.audit is None and self.model_fields_set & AuditOptions.model_fields.keys() - {"audit"}:
            raise ValueError("audit: the options of its file need --audit FILE")
        if self.receipts_key is not None and self.receipts is None:
            raise ValueError("receipts_key: there are no receipts to sign (--receipts)")
        if self.models and self.served_model_name:
            raise ValueError("served_model_name: each of several models has its own name, and aliases")
        return self

    def _shares_an_address(self) -> bool:
        """Whether the operator's port is on an address that clients' port is on, too."""
        hosts = {self.host, self.admin_host}
        return len(hosts) == 1 or not hosts.isdisjoint(("0.0.0.0", "::", ""))


def has_own_models(settings: ServeSettings) -> bool:
    """Whether a model runs on this machine."""
    models = settings.models.values() if settings.models else (settings.base_model,)
    return any(model.engine in WITH_LOGITS for model in models)


_PLURALS = ("hooks", "allowed_hooks", "logits_processors", "probes", "trusted_forwarders", "cors_origins")
"""Options that the command line names in the singular, too."""


def load_settings(arguments: list[str]) -> ServeSettings:
    """Settings from the command line's `arguments`, the environment and the YAML file that these name.

    Exits with a reason if the settings cannot be read. Prints the help and exits for `--help`.
    """
    # As with vLLM, `--max_model_len` is `--max-model-len`.
    arguments = [re.sub("^--[a-z_]+", lambda m: m[0].replace("_", "-"), argument) for argument in arguments]
    of_parts: dict[str, Any] = {}
    for group in OPTIONS_OF.values():
        if read := getattr(group, "from_command_line", None):
            arguments, of_parts = read(arguments)
    given = {**environment(), **of_parts, **_on_command_line(arguments)}
    content = _content_of(given.get("config"))
    _warn_of_variables()
    try:
        return ServeSettings(**_merged(content, given))
    except ValidationError as error:
        lines = "".join(f"\n  {problem}" for problem in problems(error, ServeSettings))
        raise SystemExit(f"weir serve: the settings are wrong{lines}") from None


def environment() -> dict[str, Any]:
    """The options in the environment."""
    variables = {name.lower(): value for name, value in os.environ.items()}
    return {
        name: variables[f"weir_{name}"] for name in options_of(ServeSettings) if f"weir_{name}" in variables
    }


def _merged(content: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """The content with what is `over` it. Two mappings are merged one by one."""
    both = {
        name: _merged(content[name], value)
        for name, value in over.items()
        if isinstance(value, dict) and isinstance(content.get(name), dict)
    }
    return {**content, **over, **both}


def _warn_of_variables() -> None:
    """Warns of misspelt variables. They are not an error, because other programs may use this prefix:
    Kubernetes does so for a service called weir."""
    known = [f"WEIR_{name.upper()}" for name in options_of(ServeSettings)]
    for name in os.environ:
        is_unknown = re.match("WEIR_(?!SERVICE_|PORT_)", name) and name not in known
        if is_unknown and (hint := did_you_mean(name, known)):
            logger.warning("the variable %s is no option%s", name, hint)


def _content_of(name: str | None) -> dict[str, Any]:
    """The content of a YAML file. Exits if the file cannot be used."""
    if not name:
        return {}
    file = Path(os.path.expanduser(name))
    if not file.is_file():
        raise SystemExit(f"weir serve: there is no configuration file {file}")
    from proxy.settings.yaml_file import duplicates, read_yaml  # PyYAML loads for those who have a file

    try:
        content, tree = read_yaml(file)
    except ValueError as error:
        raise SystemExit(f"weir serve: {error}") from None
    for line, name in duplicates(tree):
        raise SystemExit(f"weir serve: {file} has the name {name} twice in one place (line {line})")
    if found := named_variables(content, ServeSettings):
        lines = "".join(f"\n  {fault}" for fault in found)
        raise SystemExit(f"weir serve: the settings are wrong{lines}")
    return content


def _on_command_line(arguments: list[str]) -> dict[str, Any]:
    """The options among the arguments. Exits for others. Prints the help and exits for `--help`."""
    parser = CommandParser(
        prog="weir serve",
        description=inspect.getdoc(ServeSettings),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    wants_help = any(argument.startswith(("-h", "--help")) for argument in arguments)
    texts = option_texts() if wants_help else {}
    for name, (field, _) in options_of(ServeSettings).items():
        flags, text = flags_of(name), texts.get(name, "")
        if "(default: " not in text and field.default is not None and field.default not in ([], (), {}):
            text += f" (default: {field.default})"
        how = _reading(field.annotation, flags[-1])
        parser.add_argument(*flags, dest=name, help=text.replace("%", "%%"), **how)
    given = vars(parser.parse_args(arguments))
    for name, value in given.items():
        if isinstance(value, list):  # it is one text here, as in the environment
            given[name] = value = ",".join(value)
        if value == "None":
            given[name] = None
    return given


def flags_of(name: str) -> list[str]:
    """The option's names on the command line."""
    flag = f"--{name.replace('_', '-')}"
    return [flag, flag.removesuffix("s")] if name in _PLURALS else [flag]


def option_texts() -> dict[str, str]:
    """The help of each option."""
    options = options_of(ServeSettings)
    texts = {group: help_texts(group) for group in {option.settings for option in options.values()}}
    return {name: texts[option.settings][name] for name, option in options.items()}


def _reading(annotation: Any, flag: str) -> dict[str, Any]:
    """How the parser reads the option's value, and what it calls it."""
    kind = next(members(annotation))
    if kind is bool:
        return {"action": argparse.BooleanOptionalAction}
    if get_origin(kind) is Literal:
        return {"metavar": f"{{{','.join(get_args(kind))}}}"}
    action = "append" if get_origin(kind) in (list, tuple, dict) else "store"
    return {"metavar": flag.removeprefix("--").replace("-", "_").upper(), "action": action}
