"""The settings of one policy, and of one key."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from engine.protocol.options import parts
from hooks.loading.loader import HookSpec
from hooks.loading.options import PipelineOptions
from proxy.settings.groups import Settings, group
from proxy.settings.limits import NO_LIMITS, Limits
from proxy.settings.values import Names


def _hook(value: Any) -> Any:
    """A hook may be given by its import path alone."""
    return {"path": value} if isinstance(value, str) else value


def _processor(value: Any) -> Any:
    """A processor without parameters may be given by its name alone."""
    return {"name": value} if isinstance(value, str) else value


Hooks = Annotated[list[HookSpec], BeforeValidator(lambda value: parts(value, _hook))]


class PolicyProcessor(BaseModel):
    """A logits processor that runs for every request of a policy."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    name: str
    """Its name in `logits_processors` of the model."""
    params: Mapping[str, Any] = {}


OF_ONE_POLICY = frozenset(
    {"logits_processors", "allowed_logits_processors", "limits", "limits_per_key", "limits_per_tenant"}
)
"""The options of a policy that a server without `policies` does not have."""
Processors = Annotated[list[PolicyProcessor], BeforeValidator(lambda value: parts(value, _processor))]


class PolicySettings(Settings, BaseModel):
    """The rules for requests that get this policy."""

    options: PipelineOptions = Field(alias=group("options"))
    """The options of every hook."""
    hooks: Hooks = []
    """Guardrail hook: pkg.module.Class or path/to/file.py:Class; repeat in order"""
    allowed_hooks: Hooks = []
    """Hook that a request may name in its field hooks, to run in addition to the others; repeat"""
    hook_workers: Annotated[int, Field(ge=0)] = 0
    """Processes that hooks run in (0: in the service's own)"""
    logits_processors: Processors = []
    """Logits processors that run for every request, by their names on the server, with their parameters"""
    allowed_logits_processors: Names | None = None
    """Logits processors that a request may name (default: all that the model lets requests name)"""
    limits: Limits = NO_LIMITS
    """Limits of all requests of this policy together, whoever sends them"""
    limits_per_key: Limits = NO_LIMITS
    """Limits of each key's requests of this policy"""
    limits_per_tenant: Limits = NO_LIMITS
    """Limits of each tenant's requests of this policy, those of all its keys together"""


class KeyRules(BaseModel):
    """The models, policies and limits of one key."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    tenant: str = "default"
    """The team or customer that the key belongs to"""
    policy: str | dict[str, str] | None = None
    """The policy of the key's requests, or a policy for each model by its name"""
    models: Names | None = None
    """Models that the key may use (default: all)"""
    limits: Limits = NO_LIMITS
    """Limits of all requests of this key together"""
    limits_per_user: Limits = NO_LIMITS
    """Limits of each user's requests of this key, by the request's field user. Those without one count as one
    user's"""
    expires: AwareDatetime | None = None
    """The time from which on the key is not valid, with its time zone (default: never)"""


def _digest(given: str) -> str:
    kind, _, digits = given.lower().partition(":")
    if kind != "sha256" or len(digits) != 64 or set(digits) - set("0123456789abcdef"):
        raise ValueError("this must be sha256: and 64 hexadecimal digits; weir config key makes one")
    return f"{kind}:{digits}"


Hash = Annotated[str, AfterValidator(_digest), Field(repr=False)]


class PreviousValue(BaseModel):
    """The value that a key had before its rotation, which is valid for a while beside the new one."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    hash: Hash
    """The hash of the earlier value"""
    until: AwareDatetime
    """The time from which on the earlier value is not valid, with its time zone"""

    @property
    def digest(self) -> str:
        return self.hash.removeprefix("sha256:")


class KeySettings(KeyRules):
    """One client's key, by its digest."""

    hash: Hash
    """sha256: and the SHA-256 of the key, as `weir config key` prints it"""
    previous: PreviousValue | None = None
    """The value before a rotation, which stays valid until a time"""

    @property
    def digest(self) -> str:
        return self.hash.removeprefix("sha256:")
