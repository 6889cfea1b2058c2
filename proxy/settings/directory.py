"""The settings of all models, policies and keys.

A server without `models` has one model, and one without `policies` has one policy: the options beside them.
With them, these options are the defaults of each.
"""

from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator

from engine.protocol.options import mapping
from hooks.loading.options import PipelineOptions
from proxy.settings.groups import Settings, Without, group, options_of
from proxy.settings.model import AUTO, NAMING, OF_VLLM, WITH_LOGITS, WITHOUT_MODEL, ModelSettings, has_vllm
from proxy.settings.policy import OF_ONE_POLICY, KeySettings, PolicySettings
from proxy.settings.values import Names

_OF_LOGITS = {"logits_processors", "enable_test_logits_processor"}


def _unfit(engine: Any) -> Set[str]:
    """Options that the engine refuses: as defaults they are for other models."""
    if engine in WITH_LOGITS:
        # With vLLM's options, `auto` is vLLM.
        takes_vllm = engine == "vllm" or (engine == AUTO and has_vllm())
        return frozenset() if takes_vllm else OF_VLLM
    of_engines = OF_VLLM | _OF_LOGITS
    return of_engines | {"tokenizer"} if engine in WITHOUT_MODEL else of_engines


Model = Annotated[ModelSettings, AfterValidator(ModelSettings.checked)]


class DirectorySettings(Settings, BaseModel):
    """Which models are served, and who may use them under which policy."""

    base_model: Annotated[ModelSettings, Without(NAMING)] = Field(alias=group("base_model"))
    """The only model of a server without `models`."""
    base_policy: Annotated[PolicySettings, Without(OF_ONE_POLICY)] = Field(alias=group("base_policy"))
    """The only policy of a server without `policies`."""
    served_model_name: Names = []
    """Names that requests may use for the model (default: the model's)"""
    models: Annotated[dict[str, Model], BeforeValidator(mapping), Field(repr=False)] = {}
    """Models by the name that requests use, each with its engine's options; those beside it are defaults"""
    policies: Annotated[dict[str, PolicySettings], BeforeValidator(mapping), Field(repr=False)] = {}
    """Policies by name, each with its hooks, limits and options of hooks; those beside it are defaults"""
    default_policy: str | None = None
    """The policy of requests whose key and model name none (default: the only one)"""
    keys: Annotated[dict[str, KeySettings], BeforeValidator(mapping), Field(repr=False)] = {}
    """Clients' keys by name, each with its hash, tenant, policy, models and limits"""

    @model_validator(mode="before")
    @classmethod
    def _give_defaults(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        given = dict(data)
        for option, with_defaults in (("models", _model), ("policies", _policy)):
            with suppress(ValueError):  # the field says it
                if isinstance(groups := mapping(data.get(option)), Mapping):
                    given[option] = {name: with_defaults(own, data) for name, own in groups.items()}
        return given


def _model(own: Any, data: Mapping[str, Any]) -> Any:
    if isinstance(own, dict) and own.get("only_guards"):
        return own  # the defaults are for models that answer requests
    engine = (own or {}).get("engine", data.get("engine", AUTO)) if isinstance(own, dict | None) else None
    return _with(own, data, options_of(ModelSettings).keys() - NAMING - _unfit(engine))


def _policy(own: Any, data: Mapping[str, Any]) -> Any:
    return _with(own, data, {*PipelineOptions.model_fields, "hook_workers"})


def _with(own: Any, data: Mapping[str, Any], names: Iterable[str]) -> Any:
    """One group of settings, with the defaults of these names."""
    if not isinstance(own, dict | None):
        return own
    return {**{name: data[name] for name in names if name in data}, **(own or {})}
