"""`/admin/keys`: the keys of clients, those of the store and those of the settings file.

A key of the store is made here, and shown once. A key of the file is changed in the file alone. If the store
and the file have a key of the same name, the name means the store's here.
"""

import math
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any

from aiohttp import web
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from engine.protocol.did_you_mean import did_you_mean
from proxy.deployment.deployment import Deployment
from proxy.deployment.keys import Key, digest_of, new_key
from proxy.http.access.operator import admin_name, log_change
from proxy.http.admin.wire import answer, listing, moment, number, operator_store, read
from proxy.service.service import SERVICE, Service
from proxy.settings.limits import Limits
from proxy.storage.operator import changes, keys
from proxy.storage.operator.keys import StoredKey
from proxy.wire.errors import APIError

MAX_KEPT = 90 * 24 * 60 * 60
"""Most seconds for which the value before a rotation stays valid."""
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class KeyFields(BaseModel):
    """The rights of a key. A field that is left out, or null, sets nothing."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    tenant: Name | None = None
    policy: str | dict[str, str] | None = None
    models: list[str] | None = None
    limits: Limits | None = None
    limits_per_user: Limits | None = None
    expires: AwareDatetime | None = None


class NewKey(KeyFields):
    name: Name


class Rotation(BaseModel):
    """How long the value of a key stays valid beside its new one."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    keep_seconds: Annotated[int, Field(ge=0, le=MAX_KEPT)] = 24 * 60 * 60


async def list_keys(http: web.Request) -> web.Response:
    service = http.config_dict[SERVICE]
    found = await operator_store(http).store.run(keys.everything())
    configured = service.deployment.keys.values()
    of_file = [_file_object(key, configured) for key in configured if not key.is_previous]
    return listing([*of_file, *(_key_object(key) for key in found.keys)])


async def get_key(http: web.Request) -> web.Response:
    name = http.match_info["name"]
    service = http.config_dict[SERVICE]
    key = await operator_store(http).store.run(keys.find(name))
    of_file = _in_file(service, name)
    if of_file is not None and (key is None or key.revoked is not None):
        return answer(_file_object(of_file, service.deployment.keys.values()))
    if key is None:
        raise _no_key(name)
    return answer(_key_object(key))


async def create_key(http: web.Request) -> web.Response:
    operator = operator_store(http)
    service = http.config_dict[SERVICE]
    fields = await read(http, NewKey)
    check_names(service.deployment, fields)
    secret = new_key()
    key = StoredKey(fields.name, digest_of(secret.encode()), _given(fields), int(time.time()))
    if _in_file(service, key.name) or not await operator.store.run(keys.create(key, admin_name(http))):
        raise APIError(409, f"name: there is a key '{key.name}' already.", param="name", code="key_exists")
    await operator.keys.refresh()
    log_change(http, "create_key", key.name)
    return answer({**_key_object(key), "key": secret}, 201)


async def change_key(http: web.Request) -> web.Response:
    operator = operator_store(http)
    name = http.match_info["name"]
    service = http.config_dict[SERVICE]
    fields = await read(http, KeyFields)
    check_names(service.deployment, fields)
    key = await operator.store.run(keys.update(name, _given(fields), admin_name(http)))
    if key is None:
        raise _not_changed(service, name)
    await operator.keys.refresh()
    log_change(http, "change_key", name)
    return answer(_key_object(key))


async def rotate_key(http: web.Request) -> web.Response:
    """Gives the key a new value, which the answer alone has. The value so far stays valid for a while. The
    request may have no body."""
    operator = operator_store(http)
    name = http.match_info["name"]
    service = http.config_dict[SERVICE]
    rotation = await read(http, Rotation) if http.can_read_body else Rotation()
    until = time.time() + rotation.keep_seconds
    secret = new_key()
    steps = keys.rotate(name, digest_of(secret.encode()), until, admin_name(http))
    key = await operator.store.run(steps)
    if key is None:
        raise _not_changed(service, name)
    await operator.keys.refresh()
    log_change(http, "rotate_key", name)
    return answer({**_key_object(key), "key": secret})


async def revoke_key(http: web.Request) -> web.Response:
    operator = operator_store(http)
    name = http.match_info["name"]
    service = http.config_dict[SERVICE]
    if not await operator.store.run(keys.revoke(name, admin_name(http))):
        raise _not_changed(service, name)
    await operator.keys.refresh()
    log_change(http, "revoke_key", name)
    return answer({"object": "key", "name": name, "revoked": True})


async def list_changes(http: web.Request) -> web.Response:
    """`before` is a time: with the last change's, the list goes on."""
    steps = changes.latest(number(http, "limit", 100, 1000), moment(http, "before"))
    found = await operator_store(http).store.run(steps, alone=False)
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
    return fields.model_dump(exclude={"name"}, exclude_unset=True, mode="json")


def _key_object(key: StoredKey) -> dict[str, Any]:
    settings = {**dict.fromkeys(KeyFields.model_fields), **key.settings}
    settings.pop("previous", None)
    times = {"previous_until": _previous_until(key), "created": key.created, "revoked": key.revoked}
    return {"object": "key", "name": key.name, "source": "store", **settings, **times}


def _previous_until(key: StoredKey) -> str | None:
    """The time from which on the earlier value is not valid: never later than the key itself."""
    previous = key.settings.get("previous")
    if previous is None:
        return None
    expires = key.settings.get("expires")
    end = math.inf if expires is None else datetime.fromisoformat(expires).timestamp()
    return _iso(min(previous["until"], end))


def _file_object(key: Key, configured: Iterable[Key]) -> dict[str, Any]:
    """The keys of `api_key` have no name. When a key was made is not known."""
    earlier = (one.expires for one in configured if one.is_previous and one.name == key.name)
    until = next(earlier, None)
    return {
        "object": "key",
        "name": key.name or None,
        "source": "file",
        "tenant": key.tenant,
        "policy": key.policy,
        "models": key.models,
        "limits": key.limits.model_dump(exclude_none=True) or None,
        "limits_per_user": key.limits_per_user.model_dump(exclude_none=True) or None,
        "expires": None if key.expires is None else _iso(key.expires),
        "previous_until": None if until is None else _iso(until),
        "created": None,
        "revoked": None,
    }


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _in_file(service: Service, name: str) -> Key | None:
    keys_of_file = service.deployment.keys.values()
    return next((key for key in keys_of_file if key.name == name and not key.is_previous), None)


def _not_changed(service: Service, name: str) -> APIError:
    """For a name that no valid key of the store has."""
    if _in_file(service, name) is None:
        return _no_key(name)
    reason = f"name: the key '{name}' is in the settings file: change it there, and reload the configuration."
    return APIError(409, reason, param="name", code="key_in_file")


def _no_key(name: str) -> APIError:
    return APIError(404, f"There is no valid key '{name}'.", "not_found_error", param="name")
