"""Explains the route of a request: the answer of `weir config explain`, and of the operator's API."""

import re
from collections.abc import Mapping
from typing import Any

from engine.protocol import RequestError
from hooks.loading.loader import HookSpec
from proxy.deployment.directory import Directory, PolicyEntry
from proxy.deployment.keys import Key
from proxy.settings.limits import Limits

JSONObject = dict[str, Any]

_SECRET = re.compile("key|secret|token|passw|credential|auth|bearer|header", re.IGNORECASE)
_PASSWORD = re.compile(r"(?<=://)\S+@")  # a password may have a slash that nobody encoded
HIDDEN = "(hidden)"


def explain(directory: Directory, key: Key, asked: str | None) -> JSONObject:
    """The route of a request with this key for this model, as JSON. Arguments whose names may stand for
    secrets are hidden. Raises as `Directory.choose` does. The operator's error for a model that
    is not for the key is another one than for a model that is not served."""
    if asked is not None and (served := directory.find(asked)) is not None and not key.may_use(served.names):
        usable = ", ".join(key.models or ()) or "none"
        message = f"The model '{asked}' is served, and not for the key '{key.name}': its models are {usable}."
        raise RequestError(message, param="model", code="model_not_for_key", status=404)
    model, policy, reason = directory.choose(key, asked)
    described = explain_policy(policy)
    per = {one: limits for one in ("per_key", "per_tenant") if (limits := described.pop(f"limits_{one}"))}
    per_user = {"per_user": limits} if (limits := _limits(key.limits_per_user)) else {}
    return {
        "key": key.name,
        "tenant": key.tenant,
        "model": model.name,
        "aliases": model.names[1:],
        "engine": model.engine,
        "policy": described.pop("name"),
        "reason": reason,
        **described,
        "limits": {"key": _limits(key.limits), "policy": described["limits"], **per, **per_user},
    }


def explain_policy(policy: PolicyEntry) -> JSONObject:
    """The rules of the policy, as JSON."""
    settings = policy.settings
    return {
        "name": policy.name,
        "hooks": [_hook(hook) for hook in settings.hooks],
        "allowed_hooks": [_hook(hook) for hook in settings.allowed_hooks],
        "hook_workers": settings.hook_workers,
        "options": settings.options.model_dump(),
        "logits_processors": [
            {"name": one.name, "params": _without_secrets(one.params)} for one in settings.logits_processors
        ],
        "allowed_logits_processors": settings.allowed_logits_processors,
        "limits": _limits(settings.limits),
        "limits_per_key": _limits(settings.limits_per_key),
        "limits_per_tenant": _limits(settings.limits_per_tenant),
    }


def _hook(spec: HookSpec) -> JSONObject:
    return {"name": spec.label, "path": spec.path, "mode": spec.mode, "args": _without_secrets(spec.args)}


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            name: HIDDEN if _SECRET.search(str(name)) else _without_secrets(one)
            for name, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without_secrets(one) for one in value]
    return _PASSWORD.sub("", value) if isinstance(value, str) else value


def _limits(limits: Limits) -> JSONObject:
    return limits.model_dump(exclude_none=True)
