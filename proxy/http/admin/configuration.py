"""The configuration in effect: its models and policies, the route of a key's request, and the reload."""

from aiohttp import web

from proxy.deployment.explain import explain, explain_policy
from proxy.deployment.keys import Key
from proxy.http.access.operator import admin_name
from proxy.http.admin.wire import answer, listing
from proxy.http.door import sender
from proxy.service.service import SERVICE, Service
from proxy.wire.errors import APIError


async def reload(http: web.Request) -> web.Response:
    service = http.config_dict[SERVICE]
    await service.reloads.reload(admin_name(http))
    deployment = service.deployment
    names = {"models": list(deployment.models), "policies": list(deployment.policies)}
    return answer({"object": "configuration", "number": deployment.number, **names})


async def list_models(http: web.Request) -> web.Response:
    deployment = http.config_dict[SERVICE].deployment
    unhealthy = deployment.unhealthy()
    served = [
        {
            "object": "model",
            "name": name,
            "aliases": model.names[1:],
            "engine": model.settings.engine,
            "policy": model.settings.policy,
            "max_model_len": model.info.max_model_len,
            "is_healthy": name not in unhealthy,
            "only_guards": False,
        }
        for name, model in deployment.models.items()
    ]
    guards = [
        {"object": "model", "name": name, "is_healthy": fault is None, "only_guards": True}
        for name, fault in deployment.guards().items()
    ]
    return listing([*served, *guards])


async def list_policies(http: web.Request) -> web.Response:
    service = http.config_dict[SERVICE]
    directory, revisions = service.deployment.directory, service.applied.revisions(service.deployment)
    policies = [
        {"object": "policy", **explain_policy(policy), "revision": revisions[name]}
        for name, policy in directory.policies.items()
    ]
    return listing(policies, default=directory.default_policy)


async def explained(http: web.Request) -> web.Response:
    """`key`: a key's name; without it, the client's key in the request or, on a server that needs no key,
    anybody. `model`: as a request names it; without it, the key's first."""
    service = http.config_dict[SERVICE]
    name = http.query.get("key")
    key = sender(http, service) if name is None else _key_named(service, name)
    if key is None:
        reason = "there is no valid key in the request" if name is None else f"there is no valid key '{name}'"
        raise APIError(404, f"key: {reason}.", "not_found_error", param="key")
    return answer(explain(service.deployment.directory, key, http.query.get("model")))


def _key_named(service: Service, name: str) -> Key | None:
    keys = (*service.deployment.keys.values(), *service.operator.keys.valid)
    return next((key for key in keys if key.name == name and not key.is_previous), None)
