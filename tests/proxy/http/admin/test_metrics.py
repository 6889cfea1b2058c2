"""Who reads `/metrics`: it names tenants, policies, models and upstreams, so it is the operator's."""

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from proxy.http.app import make_app, operator_rule
from tests.helpers import ScriptedEngine
from tests.proxy.conftest import Client, Serve, hello
from tests.proxy.http.admin.conftest import ADMIN, OPERATOR, ask

CLIENT = {"Authorization": "Bearer a-clients"}
BESIDE = {**CLIENT, "X-Weir-Admin-Key": ADMIN}
CLIENTS_KEY = {"api_key": [SecretStr("a-clients")]}
ADMIN_KEY = {"admin_key": [SecretStr(ADMIN)], "store": SecretStr("sqlite:///:memory:")}
SECURITY = Path(__file__).parents[4] / "docs" / "security.md"


async def metrics(client: Client, **headers: str) -> tuple[int, bytes]:
    return await client.get("/metrics", headers=headers)


async def refusal(client: Client, **headers: str) -> tuple[int, str, str]:
    """The status, the error's code and its message."""
    status, body = await metrics(client, **headers)
    error = orjson.loads(body)["error"]
    return status, error["code"], error["message"]


async def test_the_admin_key_reads_metrics_and_no_clients_key_does(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), **CLIENTS_KEY, **ADMIN_KEY)
    for given in (OPERATOR, BESIDE):
        status, text = await metrics(client, **given)
        assert status == 200
        assert b"weir_num_requests_running" in text
    for given in ({}, CLIENT, {"X-Weir-Admin-Key": "a-clients"}):
        assert (await refusal(client, **given))[:2] == (401, "invalid_api_key")


async def test_a_key_that_the_operator_made_reads_no_metrics(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), **ADMIN_KEY)
    assert (await metrics(client, **OPERATOR))[0] == 200
    made = (await ask(client, "POST", "/admin/keys", {"name": "alice"}))[1]["key"]
    assert (await metrics(client, Authorization=f"Bearer {made}"))[0] == 401


async def test_a_server_with_clients_keys_alone_names_the_option_that_metrics_need(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), **CLIENTS_KEY)
    for given in ({}, CLIENT, OPERATOR):
        status, code, message = await refusal(client, **given)
        assert (status, code) == (403, "no_admin_key")
        assert "--admin-key" in message


async def test_a_server_without_any_key_shows_metrics_to_its_own_machine_alone(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello))
    assert (await metrics(client))[0] == 200
    status, code, message = await refusal(client, **{"X-Forwarded-For": "203.0.113.7"})
    assert (status, code) == (403, "no_admin_key")
    assert "--admin-key" in message


@pytest.mark.parametrize("settings", [{"host": "0.0.0.0"}, {"trusted_forwarders": ["10.0.0.0/8"]}])
async def test_a_server_that_others_may_reach_shows_metrics_to_the_admin_key_alone(
    serve: Serve, settings: Any
) -> None:
    client = await serve(ScriptedEngine(hello), **settings)
    client.url = client.url.replace("0.0.0.0", "127.0.0.1")
    assert (await refusal(client))[:2] == (403, "no_admin_key")
    client = await serve(ScriptedEngine(hello), **settings, **ADMIN_KEY)
    client.url = client.url.replace("0.0.0.0", "127.0.0.1")
    assert (await metrics(client, **OPERATOR))[0] == 200


async def test_metrics_are_on_the_operators_port_alone_and_need_no_key_there(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), **CLIENTS_KEY, **ADMIN_KEY, admin_port=0)
    assert [(await metrics(client, **given))[0] for given in ({}, CLIENT, BESIDE)] == [401, 404, 404]
    client.url = client.server.admin_url or ""
    assert (await metrics(client))[0] == 200


async def test_pages_of_other_sites_never_read_metrics(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), **ADMIN_KEY, cors_origins=["*"])
    page = {"Origin": "https://chat.example"}
    assert (await metrics(client, **page, **OPERATOR))[0] == 403


@pytest.mark.parametrize("path", ["/metrics/", "/metrics/x", "/%6detrics", "//metrics", "/v1/../metrics"])
async def test_no_other_spelling_of_the_path_needs_less(serve: Serve, path: str) -> None:
    client = await serve(ScriptedEngine(hello), **CLIENTS_KEY, **ADMIN_KEY)
    assert (await client.get(path, headers=CLIENT))[0] in (401, 404)


async def test_the_page_about_security_lists_who_may_ask_for_each_path(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), **CLIENTS_KEY, **ADMIN_KEY)
    service = client.server.service
    found: dict[str, set[str]] = {"no key": set(), "a client's key": set(), "the admin key": set()}
    for resource in make_app(service, operator_rule(service)).router.resources():
        path = resource.canonical
        needed = "the admin key"
        for key, headers in (("no key", {}), ("a client's key", CLIENT)):
            if (await client.get(path.replace("{id}", "x"), headers=headers))[0] not in (401, 403):
                needed = key
                break
        found[needed].add("/page/" if path.startswith("/page/") else path)
    listed = {
        key: set(re.findall(r"`(/[^`]*)`", paths))
        for key, paths in re.findall(
            r"^\| (no key|a client's key|the admin key) \| (.*) \|$", SECURITY.read_text(), re.M
        )
    }
    assert found == listed
