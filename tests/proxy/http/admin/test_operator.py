"""Who is an operator: the admin key, or a newcomer on the same machine who looks on."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from tests.helpers import ScriptedEngine
from tests.proxy.conftest import CHAT, Client, Serve, hello
from tests.proxy.http.admin.conftest import ADMIN, OPERATOR, ask

KEYS = "/admin/keys"


async def status(client: Client, method: str, path: str, headers: dict[str, str]) -> int:
    async with client.http.request(method, client.url + path, headers=headers) as response:
        await response.read()
        return response.status


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, 401),
        ({"Authorization": "Bearer another"}, 401),
        ({"Authorization": f"Basic {ADMIN}"}, 401),
        ({"x-api-key": ADMIN}, 401),
        (OPERATOR, 200),
        ({"X-Weir-Admin-Key": ADMIN}, 200),
        ({"Authorization": "Bearer a-client's", "X-Weir-Admin-Key": ADMIN}, 200),
        ({**OPERATOR, "Sec-Fetch-Site": "same-origin"}, 200),
        ({**OPERATOR, "Sec-Fetch-Site": "cross-site"}, 403),
        ({**OPERATOR, "Origin": "https://evil.example"}, 403),
        ({**OPERATOR, "Host": "evil.example"}, 421),
    ],
)
async def test_only_the_admin_key_opens_admin(client: Client, headers: dict[str, str], expected: int) -> None:
    assert await status(client, "GET", KEYS, headers) == expected


@pytest.mark.parametrize("path", ["/admin/nothing", "/%61dmin/keys", "/admin//keys", "/admin/keys/../keys"])
async def test_no_other_spelling_of_a_path_needs_less(client: Client, path: str) -> None:
    assert await status(client, "GET", path, {}) in (401, 404)


async def test_a_clients_key_opens_nothing_of_admin(serve: Serve) -> None:
    client = await serve(
        ScriptedEngine(hello), admin_key=[SecretStr(ADMIN)], store=SecretStr("sqlite:///:memory:")
    )
    made = (await ask(client, "POST", KEYS, {"name": "alice"}))[1]["key"]
    assert await status(client, "GET", KEYS, {"Authorization": f"Bearer {made}"}) == 401


async def test_the_admin_key_is_no_clients_key(serve: Serve) -> None:
    client = await serve(
        ScriptedEngine(hello),
        api_key=[SecretStr("a-clients")],
        admin_key=[SecretStr(ADMIN)],
        store=SecretStr("sqlite:///:memory:"),
    )
    assert (await client.post("/v1/chat/completions", CHAT, headers=OPERATOR))[0] == 401
    assert (await ask(client, "GET", KEYS))[0] == 200


async def test_pages_of_other_origins_never_use_admin(serve: Serve) -> None:
    client = await serve(
        ScriptedEngine(hello),
        admin_key=[SecretStr(ADMIN)],
        store=SecretStr("sqlite:///:memory:"),
        cors_origins=["*"],
    )
    headers = {**OPERATOR, "Origin": "https://chat.example"}
    assert await status(client, "GET", "/v1/models", headers) == 200
    assert await status(client, "GET", KEYS, headers) == 403


async def test_a_newcomer_looks_on_and_changes_nothing(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello))
    assert await status(client, "GET", KEYS, {}) == 200
    refused, body = await ask(client, "POST", KEYS, {"name": "alice"})
    assert (refused, body["error"]["code"]) == (403, "no_admin_key")


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "203.0.113.7"},
        {"X-Forwarded-For": "127.0.0.1"},
        {"Forwarded": "for=127.0.0.1"},
        {"X-Forwarded-Proto": "https"},
        {"X-Real-IP": "127.0.0.1"},
        {"Via": "1.1 proxy"},
        {"Origin": "https://chat.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "weir.example"},
    ],
)
async def test_nobody_who_came_through_another_is_a_newcomer(serve: Serve, headers: dict[str, str]) -> None:
    client = await serve(ScriptedEngine(hello), cors_origins=["*"], allowed_hosts=["*"])
    assert await status(client, "GET", KEYS, headers) == 403


@pytest.mark.parametrize(
    "settings",
    [
        {"api_key": [SecretStr("a-clients")]},
        {"host": "0.0.0.0"},
        {"trusted_forwarders": ["10.0.0.0/8"]},
        {"admin_port": 0, "admin_host": "0.0.0.0"},
    ],
)
async def test_a_server_that_others_may_reach_has_no_newcomer(serve: Serve, settings: Any) -> None:
    client = await serve(ScriptedEngine(hello), **settings)
    client.url = (client.server.admin_url or client.url).replace("0.0.0.0", "127.0.0.1")
    assert await status(client, "GET", KEYS, {"Authorization": "Bearer a-clients"}) == 403


async def test_a_server_with_made_keys_has_no_newcomer(serve: Serve, tmp_path: Path) -> None:
    """Also once it is started without its admin key."""
    store = SecretStr(f"sqlite:///{tmp_path}/weir.sqlite")
    before = await serve(ScriptedEngine(hello), admin_key=[SecretStr(ADMIN)], store=store)
    await ask(before, "POST", KEYS, {"name": "alice"})
    client = await serve(ScriptedEngine(hello), store=store)
    assert await status(client, "GET", KEYS, {}) == 403


async def test_a_request_of_http_1_0_may_be_a_proxys(serve: Serve) -> None:
    import asyncio

    client = await serve(ScriptedEngine(hello))
    host, port = client.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {KEYS} HTTP/1.0\r\nHost: {host}:{port}\r\n\r\n".encode())
    assert (await reader.read()).startswith(b"HTTP/1.0 403")
    writer.close()


async def test_the_operators_port_has_all_of_it_and_the_other_port_none(serve: Serve) -> None:
    client = await serve(
        ScriptedEngine(hello),
        api_key=[SecretStr("a-clients")],
        admin_key=[SecretStr(ADMIN)],
        store=SecretStr("sqlite:///:memory:"),
        admin_port=0,
    )
    base = client.server.admin_url
    assert base is not None
    mine = Client(base, client.server, client.http)
    assert await status(mine, "GET", KEYS, OPERATOR) == 200
    assert await status(mine, "GET", KEYS, {}) == 401
    for path in ("/metrics", "/health", "/ready"):
        assert await status(mine, "GET", path, {}) == 200
    assert await status(mine, "GET", "/v1/models", OPERATOR) == 404
    assert await status(client, "GET", KEYS, {**OPERATOR, "Authorization": "Bearer a-clients"}) == 404
