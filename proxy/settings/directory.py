"""The settings of all models, policies and keys.

A server without `models` has one model, and one without `policies` has one policy: the options beside them.
With them, these options are the defaults of each.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from engine.protocol.options import mapping
from hooks.pipeline.options import PipelineOptions
from proxy.settings.model import (
    AUTO,
    OF_VLLM,
    WITH_LOGITS,
    WITHOUT_MODEL,
    EngineSettings,
    ModelSettings,
    has_vllm,
)
from proxy.settings.policy import HookSettings, KeySettings, PolicySettings
from proxy.settings.values import Names

_OF_LOGITS = {"logits_processors", "enable_test_logits_processor"}


def _unfit(engine: Any) -> Collection[str]:
    """Options that the engine refuses: as defaults they are for other models."""
    if engine in WITH_LOGITS:
        # With vLLM's options, `auto` is vLLM.
        takes_vllm = engine == "vllm" or (engine == AUTO and has_vllm())
        return () if takes_vllm else OF_VLLM
    of_engines = OF_VLLM | _OF_LOGITS
    return of_engines | {"tokenizer"} if engine in WITHOUT_MODEL else of_engines


class DirectorySettings(HookSettings, EngineSettings, BaseModel):
    """Which models are served, and who may use them under which policy."""

    served_model_name: Names = []
    """Names that requests may use for the model (default: the model's)"""
    models: Annotated[dict[str, ModelSettings], BeforeValidator(mapping), Field(repr=False)] = {}
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
        models, policies = _mapping(data.get("models")), _mapping(data.get("policies"))
        common = {*PipelineOptions.model_fields, "hook_workers"}
        return {
            **data,
            **({"models": {k: _with_engine_defaults(v, data) for k, v in models.items()}} if models else {}),
            **({"policies": {k: _with(v, data, common) for k, v in policies.items()}} if policies else {}),
        }

    @model_validator(mode="after")
    def _engine_has_what_it_needs(self) -> Self:
        if not self.models:  # else the options are defaults only
            self.check_engine()
        return self


def _mapping(value: Any) -> Mapping[str, Any]:
    try:
        value = mapping(value)
    except ValueError:  # the field says it
        return {}
    return value if isinstance(value, Mapping) else {}


def _with_engine_defaults(own: Any, data: Mapping[str, Any]) -> Any:
    if isinstance(own, dict) and own.get("only_guards"):
        return own  # the defaults are for models that answer requests
    engine = (own or {}).get("engine", data.get("engine", AUTO)) if isinstance(own, dict | None) else None
    return _with(own, data, EngineSettings.model_fields.keys() - _unfit(engine))


def _with(own: Any, data: Mapping[str, Any], names: Iterable[str]) -> Any:
    """One group of settings, with the defaults of these names."""
    if not isinstance(own, dict | None):
        return own
    return {**{name: data[name] for name in names if name in data}, **(own or {})}
