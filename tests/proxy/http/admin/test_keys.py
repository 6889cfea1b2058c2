"""Keys that the operator makes, changes and revokes."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from proxy.deployment.keys import digest_of
from proxy.settings.limits import Limits
from proxy.settings.policy import KeySettings
from proxy.storage.operator import keys as key_table
from tests.helpers import ScriptedEngine
from tests.proxy.conftest import CHAT, Client, Serve, hello
from tests.proxy.http.admin.conftest import ADMIN, Operate, ask, store_of

KEYS = "/admin/keys"


async def test_a_key_is_shown_once_and_kept_as_a_hash(
    client: Client, operate: Operate, tmp_path: Path
) -> None:
    status, made = await operate(
        "POST", KEYS, {"name": "alice", "tenant": "acme", "limits": {"requests_per_minute": 5}}
    )
    assert status == 201
    assert made["key"].startswith("weir-")
    assert len(made["key"]) > 40
    status, found = await operate("GET", f"{KEYS}/alice")
    assert status == 200
    assert found == {name: value for name, value in made.items() if name != "key"}
    assert found["tenant"] == "acme"
    assert (await operate("GET", KEYS))[1]["data"] == [found]
    (stored,) = (await store_of(client.server.service).run(key_table.everything())).keys
    assert stored.digest == hashlib.sha256(made["key"].encode()).hexdigest()
    assert made["key"].encode() not in bytes_of_all_files(tmp_path)


def bytes_of_all_files(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


async def test_a_key_is_changed_field_by_field(operate: Operate) -> None:
    await operate("POST", KEYS, {"name": "alice", "tenant": "acme", "models": ["m"]})
    status, changed = await operate("PATCH", f"{KEYS}/alice", {"models": None, "policy": "default"})
    assert (status, changed["tenant"], changed["models"], changed["policy"]) == (200, "acme", None, "default")
    assert (await operate("GET", f"{KEYS}/alice"))[1] == changed


async def test_a_revoked_key_stays_listed_and_its_name_may_be_used_anew(operate: Operate) -> None:
    await operate("POST", KEYS, {"name": "alice"})
    assert (await operate("DELETE", f"{KEYS}/alice"))[0] == 200
    assert (await operate("DELETE", f"{KEYS}/alice"))[0] == 404
    assert (await operate("PATCH", f"{KEYS}/alice", {}))[0] == 404
    assert (await operate("GET", f"{KEYS}/alice"))[1]["revoked"] is not None
    assert (await operate("POST", KEYS, {"name": "alice"}))[0] == 201
    assert (await operate("GET", f"{KEYS}/alice"))[1]["revoked"] is None


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "alice\n"}, "name"),
        ({"name": "x" * 65}, "name"),
        ({"name": "bob", "limits": {"requests_per_minute": 0}}, "limits.requests_per_minute"),
        ({"name": "bob", "limits": {"requests_per_minute": 2**64}}, "limits.requests_per_minute"),
        ({"name": "bob", "limits": {"requests": 3}}, "limits.requests"),
        ({"name": "bob", "hash": "sha256:00"}, "hash"),
        ({"name": "alice"}, "name"),
        (["alice"], None),
    ],
)
async def test_a_key_that_cannot_be_made_is_refused_with_the_field(
    operate: Operate, body: Any, param: str | None
) -> None:
    await operate("POST", KEYS, {"name": "alice"})
    status, answer = await operate("POST", KEYS, body)
    assert status == (409 if body == {"name": "alice"} else 400)
    assert answer["error"]["param"] == param


async def test_each_change_is_a_row_and_a_log_line_that_name_who_made_it(
    operate: Operate, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "weir.admin")
    await operate("POST", KEYS, {"name": "alice", "tenant": "acme"})
    await operate("PATCH", f"{KEYS}/alice", {"tenant": "bits"})
    await operate("DELETE", f"{KEYS}/alice")
    data = (await operate("GET", "/admin/changes"))[1]["data"]
    assert [(one["action"], one["object"], one["detail"]) for one in data] == [
        ("revoke_key", "alice", {}),
        ("change_key", "alice", {"tenant": "bits"}),
        ("create_key", "alice", {"tenant": "acme"}),
    ]
    who = f"admin-{hashlib.sha256(ADMIN.encode()).hexdigest()[:8]}"
    assert {one["operator"] for one in data} == {who}
    assert caplog.messages == [f"{who}: {what} alice" for what in ("create_key", "change_key", "revoke_key")]
    earlier = (await operate("GET", f"/admin/changes?limit=1&before={data[1]['time']}"))[1]["data"]
    assert [one["action"] for one in earlier] == ["create_key"]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=x", "limit=9999", f"limit={1:020}9", "before=x", "before=nan", "before=-1"]
)
async def test_a_wrong_query_is_refused(operate: Operate, query: str) -> None:
    status, answer = await operate("GET", f"/admin/changes?{query}")
    assert (status, answer["error"]["param"]) == (400, query.partition("=")[0])


async def test_a_body_is_json_and_not_large(client: Client, operate: Operate) -> None:
    assert (await operate("POST", KEYS, {"name": "alice", "models": ["m" * 70_000]}))[0] == 413
    headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "text/plain"}
    async with client.http.post(client.url + KEYS, data=b"{}", headers=headers) as response:
        assert response.status == 415
    headers["Content-Type"] = "application/json"
    half_a_character = b'{"name": "alice", "policy": "\\ud800"}'
    async with client.http.post(client.url + KEYS, data=half_a_character, headers=headers) as response:
        assert response.status == 400


async def test_keys_of_the_settings_file_are_listed_and_cannot_be_changed(serve: Serve) -> None:
    file_key = KeySettings(
        hash=f"sha256:{digest_of(b'alices')}", tenant="acme", models=["m"], limits=Limits(max_tokens=5)
    )
    client = await serve(
        ScriptedEngine(hello),
        admin_key=[SecretStr(ADMIN)],
        api_key=[SecretStr("nameless")],
        keys={"alice": file_key},
        store=SecretStr("sqlite:///:memory:"),
    )
    await ask(client, "POST", KEYS, {"name": "bob"})
    listed = (await ask(client, "GET", KEYS))[1]["data"]
    assert [(one["name"], one["source"]) for one in listed] == [
        (None, "file"),
        ("alice", "file"),
        ("bob", "store"),
    ]
    assert listed[0].keys() == listed[1].keys() == listed[2].keys()
    assert listed[1] == {
        "object": "key",
        "name": "alice",
        "source": "file",
        "tenant": "acme",
        "policy": None,
        "models": ["m"],
        "limits": {"max_tokens": 5},
        "limits_per_user": None,
        "expires": None,
        "previous_until": None,
        "created": None,
        "revoked": None,
    }
    assert (await ask(client, "GET", f"{KEYS}/alice"))[1] == listed[1]
    for method, path, body in (
        ("PATCH", f"{KEYS}/alice", {"tenant": "bits"}),
        ("DELETE", f"{KEYS}/alice", None),
        ("POST", KEYS, {"name": "alice"}),
    ):
        status, answer = await ask(client, method, path, body)
        assert (status, answer["error"]["param"]) == (409, "name")
    assert (await ask(client, "GET", KEYS))[1]["data"] == listed
    headers = {"Authorization": "Bearer alices"}
    assert (await client.post("/v1/chat/completions", CHAT, headers=headers))[0] == 200


async def test_a_stored_key_is_revoked_though_the_file_has_its_name_by_now(
    serve: Serve, tmp_path: Path
) -> None:
    settings = {"admin_key": [SecretStr(ADMIN)], "store": SecretStr(f"sqlite:///{tmp_path}/weir.sqlite")}
    one = await serve(ScriptedEngine(hello), **settings)
    await ask(one, "POST", KEYS, {"name": "alice"})
    file_key = KeySettings(hash=f"sha256:{digest_of(b'alices')}")
    two = await serve(ScriptedEngine(hello), **settings, keys={"alice": file_key})
    assert (await ask(two, "GET", f"{KEYS}/alice"))[1]["source"] == "store"
    assert [(await ask(two, "DELETE", f"{KEYS}/alice"))[0] for _ in range(2)] == [200, 409]
    assert (await ask(two, "GET", f"{KEYS}/alice"))[1]["source"] == "file"
