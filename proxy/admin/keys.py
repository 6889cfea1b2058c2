"""`/admin/keys`: the keys of clients. A key itself is shown once, when it is made."""

import hashlib
import secrets
import time
from typing import Annotated, Any

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from engine.did_you_mean import did_you_mean
from proxy.admin.operator import admin_name, log_change
from proxy.admin.wire import answer, listing, moment, number, read
from proxy.errors import APIError
from proxy.policies.deployment import Deployment
from proxy.policies.limits import Limits
from proxy.service import SERVICE
from proxy.store import changes, keys
from proxy.store.keys import StoredKey

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class KeyFields(BaseModel):
    """What a key may do. A field that is left out, or null, sets nothing."""

    model_config = ConfigDict(extra="forbid")

    tenant: Name | None = None
    policy: str | dict[str, str] | None = None
    models: list[str] | None = None
    limits: Limits | None = None


class NewKey(KeyFields):
    name: Name


async def list_keys(http: web.Request) -> web.Response:
    found = await http.config_dict[SERVICE].store.run(keys.everything())
    return listing([_key_object(key) for key in found.keys])


async def get_key(http: web.Request) -> web.Response:
    name = http.match_info["name"]
    key = await http.config_dict[SERVICE].store.run(keys.find(name))
    if key is None:
        raise _no_key(name)
    return answer(_key_object(key))


async def create_key(http: web.Request) -> web.Response:
    service = http.config_dict[SERVICE]
    fields = await read(http, NewKey)
    check_names(service.deployment, fields)
    secret = f"weir-{secrets.token_urlsafe(32)}"
    digest = hashlib.sha256(secret.encode()).hexdigest()
    key = StoredKey(fields.name, digest, _given(fields), int(time.time()))
    is_configured = any(one.name == key.name for one in service.deployment.keys.values())
    if is_configured or not await service.store.run(keys.create(key, admin_name(http))):
        raise APIError(409, f"name: there is a key '{key.name}' already.", param="name", code="key_exists")
    await service.made_keys.refresh()
    log_change(http, "create_key", key.name)
    return answer({**_key_object(key), "key": secret}, 201)


async def change_key(http: web.Request) -> web.Response:
    name = http.match_info["name"]
    service = http.config_dict[SERVICE]
    fields = await read(http, KeyFields)
    check_names(service.deployment, fields)
    key = await service.store.run(keys.update(name, _given(fields), admin_name(http)))
    if key is None:
        raise _no_key(name)
    await service.made_keys.refresh()
    log_change(http, "change_key", name)
    return answer(_key_object(key))


async def revoke_key(http: web.Request) -> web.Response:
    name = http.match_info["name"]
    service = http.config_dict[SERVICE]
    if not await service.store.run(keys.revoke(name, admin_name(http))):
        raise _no_key(name)
    await service.made_keys.refresh()
    log_change(http, "revoke_key", name)
    return answer({"object": "key", "name": name, "revoked": True})


async def list_changes(http: web.Request) -> web.Response:
    """`before` is a time: with the last change's, the list goes on."""
    steps = changes.latest(number(http, "limit", 100, 1000), moment(http, "before"))
    found = await http.config_dict[SERVICE].store.run(steps, alone=False)
    return listing([change.public() for change in found])


def check_names(deployment: Deployment, fields: KeyFields) -> None:
    """Raise `APIError` 400 for a model or a policy that is not configured."""
    policies = fields.policy if isinstance(fields.policy, dict) else {None: fields.policy}
    models = [*(fields.models or ()), *(name for name in policies if name is not None)]
    for param, names, known in (
        ("policy", policies.values(), deployment.policies),
        ("models", models, [name for model in deployment.directory.models.values() for name in model.names]),
    ):
        for name in names:
            if name is not None and name not in known:
                hint = did_you_mean(name, known)
                raise APIError(400, f"{param}: there is no '{name}' in the configuration{hint}", param=param)


def _given(fields: KeyFields) -> dict[str, Any]:
    return fields.model_dump(exclude={"name"}, exclude_unset=True)


def _key_object(key: StoredKey) -> dict[str, Any]:
    settings = {"tenant": None, "policy": None, "models": None, "limits": None, **key.settings}
    return {"object": "key", "name": key.name, **settings, "created": key.created, "revoked": key.revoked}


def _no_key(name: str) -> APIError:
    return APIError(404, f"There is no valid key '{name}'.", "not_found_error", param="name")
