"""Keys that the operator made, as clients use them."""

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from proxy.deployment import keys as key_module
from proxy.deployment.deployment import Deployment
from proxy.http.admin import keys as admin_keys
from proxy.http.app import Server
from proxy.service.operator import stored_keys as directory
from proxy.settings.storage import StoreOptions
from tests.helpers import ScriptedEngine, pipeline_of
from tests.proxy.conftest import CHAT, Client, Serve, hello
from tests.proxy.http.admin.conftest import ADMIN, ask

CHATS = "/v1/chat/completions"
KEYS = "/admin/keys"


async def status(client: Client, key: str) -> int:
    return (await client.post(CHATS, CHAT, headers={"Authorization": f"Bearer {key}"}))[0]


async def test_a_key_holds_from_its_making_to_its_end(client: Client) -> None:
    assert await status(client, "") == 200, "a server without keys is open"
    made = (await ask(client, "POST", KEYS, {"name": "alice"}))[1]["key"]
    assert [await status(client, key) for key in ("", "another", made)] == [401, 401, 200]
    await ask(client, "DELETE", f"{KEYS}/alice")
    assert [await status(client, key) for key in ("", made)] == [401, 401], "it is not open again"


class Clock:
    """The time of keys, which stands still."""

    now = 1_800_000_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(key_module, "time", clock)
    monkeypatch.setattr(admin_keys, "time", clock)
    return clock


async def test_a_key_expires(client: Client, clock: Clock) -> None:
    _, made = await ask(client, "POST", KEYS, {"name": "alice", "expires": "2027-01-15T08:00:01Z"})
    assert made["expires"] == "2027-01-15T08:00:01Z"
    assert await status(client, made["key"]) == 200
    clock.now += 1
    headers = {"Authorization": f"Bearer {made['key']}"}
    code, body, _ = await client.post(CHATS, CHAT, headers=headers)
    assert (code, body["error"]["message"]) == (401, "This API key has expired.")
    assert await status(client, "") == 401, "the server is not open again"
    await ask(client, "PATCH", f"{KEYS}/alice", {"expires": None})
    assert await status(client, made["key"]) == 200


async def test_a_time_without_a_zone_is_refused(client: Client) -> None:
    code, body = await ask(client, "POST", KEYS, {"name": "alice", "expires": "2027-01-15T08:00:00"})
    assert (code, body["error"]["param"]) == (400, "expires")


async def test_a_rotated_key_has_two_values_for_a_while(client: Client, clock: Clock) -> None:
    old = (await ask(client, "POST", KEYS, {"name": "alice", "tenant": "acme"}))[1]["key"]
    code, rotated = await ask(client, "POST", f"{KEYS}/alice/rotate", {"keep_seconds": 60})
    new = rotated["key"]
    assert (code, rotated["previous_until"], rotated["tenant"]) == (200, "2027-01-15T08:01:00Z", "acme")
    assert [await status(client, key) for key in (old, new)] == [200, 200]
    (listed,) = (await ask(client, "GET", KEYS))[1]["data"]
    assert listed == {name: value for name, value in rotated.items() if name != "key"}
    clock.now += 60
    assert [await status(client, key) for key in (old, new)] == [401, 200]


async def test_a_rotation_without_a_body_keeps_the_old_value_for_a_day(client: Client, clock: Clock) -> None:
    old = (await ask(client, "POST", KEYS, {"name": "alice"}))[1]["key"]
    code, rotated = await ask(client, "POST", f"{KEYS}/alice/rotate")
    assert (code, rotated["previous_until"]) == (200, "2027-01-16T08:00:00Z")
    assert [await status(client, key) for key in (old, rotated["key"])] == [200, 200]
    assert (await ask(client, "POST", KEYS))[0] == 415, "no other request does without"


async def test_the_old_value_is_not_listed_as_valid_for_longer_than_the_key(
    client: Client, clock: Clock
) -> None:
    await ask(client, "POST", KEYS, {"name": "alice"})
    await ask(client, "POST", f"{KEYS}/alice/rotate", {"keep_seconds": 3600})
    ends = "2027-01-15T08:30:00Z"
    changed = (await ask(client, "PATCH", f"{KEYS}/alice", {"expires": ends}))[1]
    assert (changed["expires"], changed["previous_until"]) == (ends, ends)
    changed = (await ask(client, "PATCH", f"{KEYS}/alice", {"expires": None}))[1]
    assert (changed["expires"], changed["previous_until"]) == (None, "2027-01-15T09:00:00Z")


async def test_a_second_rotation_ends_the_first_value(client: Client) -> None:
    values = [(await ask(client, "POST", KEYS, {"name": "alice"}))[1]["key"]]
    for body in ({}, {"keep_seconds": 0}):
        values.append((await ask(client, "POST", f"{KEYS}/alice/rotate", body))[1]["key"])
    assert [await status(client, key) for key in values] == [401, 401, 200]
    await ask(client, "DELETE", f"{KEYS}/alice")
    assert await status(client, values[-1]) == 401
    assert (await ask(client, "POST", f"{KEYS}/alice/rotate", {}))[0] == 404


async def test_both_values_of_a_key_share_its_limits(client: Client) -> None:
    rules = {"name": "alice", "limits": {"requests_per_minute": 1}}
    old = (await ask(client, "POST", KEYS, rules))[1]["key"]
    new = (await ask(client, "POST", f"{KEYS}/alice/rotate", {}))[1]["key"]
    assert [await status(client, key) for key in (old, new)] == [200, 429]


async def test_a_key_may_use_its_models_alone(client: Client) -> None:
    made = (await ask(client, "POST", KEYS, {"name": "alice", "models": []}))[1]["key"]
    assert await status(client, made) == 404
    await ask(client, "PATCH", f"{KEYS}/alice", {"models": ["m"]})
    assert await status(client, made) == 200


async def test_configured_keys_and_made_keys_are_both_valid(serve: Serve) -> None:
    client = await serve(
        ScriptedEngine(hello),
        api_key=[SecretStr("a-clients")],
        admin_key=[SecretStr(ADMIN)],
        store=SecretStr("sqlite:///:memory:"),
    )
    made = (await ask(client, "POST", KEYS, {"name": "alice"}))[1]["key"]
    assert [await status(client, key) for key in ("", "a-clients", made)] == [401, 200, 200]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"models": ["n"]}, "models"),
        ({"policy": "strict"}, "policy"),
        ({"policy": {"m": "strict"}}, "policy"),
        ({"policy": {"n": "default"}}, "models"),
    ],
)
async def test_a_key_names_what_is_configured(client: Client, body: Any, param: str) -> None:
    code, answer = await ask(client, "POST", KEYS, {"name": "alice", **body})
    assert (code, answer["error"]["param"]) == (400, param)


async def test_another_process_learns_of_a_change(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "INTERVAL", 0.01)
    store = SecretStr(f"sqlite:///{tmp_path}/weir.sqlite")
    one, two = [
        await serve(ScriptedEngine(hello), admin_key=[SecretStr(ADMIN)], store=store) for _ in range(2)
    ]
    made = (await ask(one, "POST", KEYS, {"name": "alice"}))[1]["key"]
    while await status(two, "another") != 401:
        await asyncio.sleep(0.005)
    assert await status(two, made) == 200
    await ask(two, "DELETE", f"{KEYS}/alice")
    while await status(one, made) != 401:
        await asyncio.sleep(0.005)


async def test_keys_outlive_a_restart(serve: Serve, tmp_path: Path) -> None:
    store = SecretStr(f"sqlite:///{tmp_path}/weir.sqlite")
    one = await serve(ScriptedEngine(hello), admin_key=[SecretStr(ADMIN)], store=store)
    made = (await ask(one, "POST", KEYS, {"name": "alice"}))[1]["key"]
    await one.server.stop()
    two = await serve(ScriptedEngine(hello), admin_key=[SecretStr(ADMIN)], store=store)
    assert [await status(two, key) for key in ("", made)] == [401, 200]


async def test_a_server_that_cannot_read_the_keys_yet_is_open_to_nobody(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may start so, in the place of a worker that died."""
    monkeypatch.setattr(directory, "INTERVAL", 0.01)
    made = (await ask(client, "POST", KEYS, {"name": "alice"}))[1]["key"]
    monkeypatch.setattr(StoreOptions, "store_timeout", 0.1)
    settings = client.server.service.settings
    server = Server(
        Deployment.of_one(ScriptedEngine(hello), pipeline_of(), settings.base_model, ["m"]), settings
    )
    with closing(sqlite3.connect(tmp_path / "weir.sqlite", isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        other = replace(client, url=await server.start(salt=bytes(16)))
        assert [await status(other, key) for key in ("", made)] == [401, 401]
    while await status(other, made) != 200:
        await asyncio.sleep(0.005)
    assert await status(other, "") == 401
    await server.stop()
