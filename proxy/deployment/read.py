"""Reads the directory of models, policies and keys off the settings."""

from dataclasses import replace

from engine.protocol.did_you_mean import did_you_mean
from proxy.deployment.directory import Directory, PolicyEntry
from proxy.deployment.engine_choice import with_engine
from proxy.deployment.engines import names_of
from proxy.deployment.keys import Key, digest_of
from proxy.settings.model import UPSTREAM_ENGINES, ModelSettings
from proxy.settings.policy import KeyRules, PolicySettings
from proxy.settings.serve import ServeSettings

DEFAULT = "default"
"""The policy of a server without `policies`."""


def directory_of(settings: ServeSettings) -> Directory:
    """A server without `models` has one model, and one without `policies` one policy."""
    policies = {name: PolicyEntry(name, policy) for name, policy in settings.policies.items()}
    if not policies:
        only = settings.base_policy.model_copy(update={"hooks": settings.hook_specs})
        policies = {DEFAULT: PolicyEntry(DEFAULT, only)}
    default = settings.default_policy or (next(iter(policies)) if len(policies) == 1 else None)
    return Directory(_models(settings), policies.values(), keys_of(settings), default)


def chosen_policy(settings: ServeSettings, name: str | None = None) -> PolicySettings:
    """The policy of this name; None: the default one, or the only one. Raises `ValueError`."""
    policies = directory_of(settings).policies
    name = name or settings.default_policy or (next(iter(policies)) if len(policies) == 1 else None)
    if name is None:
        raise ValueError(f"--policy: one of {', '.join(policies)} is needed")
    if name not in policies:
        raise ValueError(f"there is no policy {name!r}{did_you_mean(name, list(policies))}")
    return policies[name].settings


def keys_of(settings: ServeSettings) -> list[Key]:
    """The keys of clients: those without a name, and those in `keys`."""
    nameless = [Key(digest=digest_of(key.get_secret_value().encode())) for key in settings.api_key]
    named = [make_key(name, one.digest, one) for name, one in settings.keys.items()]
    earlier = [
        previous_key(key, one.previous.digest, one.previous.until.timestamp())
        for key, one in zip(named, settings.keys.values(), strict=True)
        if one.previous is not None
    ]
    return [*nameless, *named, *earlier]


def previous_key(key: Key, digest: str, until: float) -> Key:
    """The key by its earlier value, which is valid until then."""
    expires = until if key.expires is None else min(until, key.expires)
    return replace(key, digest=digest, expires=expires, is_previous=True)


def make_key(name: str, digest: str, rules: KeyRules) -> Key:
    """The key of these rules."""
    return Key(
        name=name,
        tenant=rules.tenant,
        policy=rules.policy,
        models=None if rules.models is None else tuple(rules.models),
        limits=rules.limits,
        limits_per_user=rules.limits_per_user,
        digest=digest,
        expires=None if rules.expires is None else rules.expires.timestamp(),
    )


def _models(settings: ServeSettings) -> list[ModelSettings]:
    if settings.models:
        return [_model(name, model) for name, model in settings.models.items()]
    model = with_engine(settings.base_model)
    return [model.named(names_of(model, settings.served_model_name))]


def _model(name: str, model: ModelSettings) -> ModelSettings:
    model = with_engine(model)
    names = names_of(model, [name, *model.aliases])
    if model.engine in UPSTREAM_ENGINES and model.upstream_model is None:
        # An upstream knows none of the aliases.
        return model.named(names, upstream_model=name)
    return model.named(names)
