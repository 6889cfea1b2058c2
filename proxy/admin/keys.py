"""`/admin/keys`: the keys of clients. A key itself is shown once, when it is made."""

import hashlib
import secrets
import time
from typing import Annotated, Any

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from proxy.admin.operator import admin_name, log_change
from proxy.admin.wire import answer, listing, moment, number, read
from proxy.errors import APIError
from proxy.service import SERVICE
from proxy.store import changes, keys
from proxy.store.keys import StoredKey

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
AtLeastOne = Annotated[int, Field(ge=1)]


class LimitFields(BaseModel):
    model_config = ConfigDict(extra="forbid")

    requests_per_minute: AtLeastOne | None = None
    tokens_per_minute: AtLeastOne | None = None
    concurrent_requests: AtLeastOne | None = None
    max_tokens: AtLeastOne | None = None


class KeyFields(BaseModel):
    """What a key may do. A field that is left out, or null, sets nothing."""

    model_config = ConfigDict(extra="forbid")

    tenant: Name | None = None
    policy: str | dict[str, str] | None = None
    models: list[str] | None = None
    limits: LimitFields | None = None


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
    fields = await read(http, NewKey)
    secret = f"weir-{secrets.token_urlsafe(32)}"
    digest = hashlib.sha256(secret.encode()).hexdigest()
    key = StoredKey(fields.name, digest, _given(fields), int(time.time()))
    if not await http.config_dict[SERVICE].store.run(keys.create(key, admin_name(http))):
        raise APIError(409, f"name: there is a key '{key.name}' already.", param="name", code="key_exists")
    log_change(http, "create_key", key.name)
    return answer({**_key_object(key), "key": secret}, 201)


async def change_key(http: web.Request) -> web.Response:
    name = http.match_info["name"]
    given = _given(await read(http, KeyFields))
    key = await http.config_dict[SERVICE].store.run(keys.update(name, given, admin_name(http)))
    if key is None:
        raise _no_key(name)
    log_change(http, "change_key", name)
    return answer(_key_object(key))


async def revoke_key(http: web.Request) -> web.Response:
    name = http.match_info["name"]
    if not await http.config_dict[SERVICE].store.run(keys.revoke(name, admin_name(http))):
        raise _no_key(name)
    log_change(http, "revoke_key", name)
    return answer({"object": "key", "name": name, "revoked": True})


async def list_changes(http: web.Request) -> web.Response:
    """`before` is a time: with the last change's, the list goes on."""
    steps = changes.latest(number(http, "limit", 100, 1000), moment(http, "before"))
    found = await http.config_dict[SERVICE].store.run(steps, alone=False)
    return listing([change.public() for change in found])


def _given(fields: KeyFields) -> dict[str, Any]:
    return fields.model_dump(exclude={"name"}, exclude_unset=True)


def _key_object(key: StoredKey) -> dict[str, Any]:
    settings = {"tenant": None, "policy": None, "models": None, "limits": None, **key.settings}
    return {"object": "key", "name": key.name, **settings, "created": key.created, "revoked": key.revoked}


def _no_key(name: str) -> APIError:
    return APIError(404, f"There is no valid key '{name}'.", "not_found_error", param="name")
