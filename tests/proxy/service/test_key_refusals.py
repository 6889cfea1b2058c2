"""Refused keys are in the log, with who sent them, and never fill it."""

import logging
from typing import Any

import pytest
from pydantic import SecretStr

from proxy.service.key_refusals import INTERVAL, MAX_LINES, MAX_OF_ADDRESS, KeyRefusals
from tests.helpers import ScriptedEngine
from tests.proxy.conftest import CHAT, Client, Serve, hello

GUESS = "sk-a-guess"
PATHS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"prompt": "a"},
    "/v1/responses": {"input": "a"},
    "/v1/messages": {**CHAT, "model": "m", "max_tokens": 1},
}


def lines_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(one)["fields"] for one in caplog.records if one.name == "weir.keys"]


async def refused(client: Client, method: str, path: str, headers: dict[str, str], body: Any = None) -> None:
    async with client.http.request(method, client.url + path, headers=headers, json=body) as response:
        assert response.status == 401


@pytest.mark.parametrize("path", PATHS)
async def test_a_clients_refused_key_is_a_line_with_its_address(
    serve: Serve, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    client = await serve(
        ScriptedEngine(hello),
        api_key=[SecretStr("right")],
        trusted_forwarders=["127.0.0.1"],
        access_log=False,
        log_level="warning",
    )
    caplog.set_level(logging.WARNING)
    headers = {"Authorization": f"Bearer {GUESS}", "X-Forwarded-For": "203.0.113.7"}
    await refused(client, "POST", path, headers, PATHS[path])
    reason = "A valid API key is needed."
    assert lines_of(caplog) == [
        {"address": "203.0.113.7", "path": path, "reason": reason, "num_unlogged": None}
    ]
    assert GUESS not in "".join(str(vars(one)) for one in caplog.records)


@pytest.mark.parametrize("options", [{}, {"admin_port": 0}], ids=["one port", "a port of its own"])
async def test_an_operators_refused_key_is_a_line_too(
    serve: Serve, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    store = SecretStr("sqlite:///:memory:")
    client = await serve(ScriptedEngine(hello), admin_key=[SecretStr("right")], store=store, **options)
    client.url = client.server.admin_url or client.url
    await refused(client, "GET", "/admin/keys", {"X-Weir-Admin-Key": GUESS})
    await refused(client, "DELETE", f"/admin/keys/{GUESS}", {"Authorization": f"Bearer {GUESS}"})
    told = lines_of(caplog)
    assert [one["address"] for one in told] == ["127.0.0.1"] * 2
    assert [one["path"] for one in told] == ["/admin/keys", "/admin/keys/{name}"]
    assert GUESS not in str(told)


def test_who_guesses_keys_fills_no_disk(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    refusals = KeyRefusals(lambda: now)
    for _ in range(1000):
        refusals.report("192.0.2.1", "/v1/models", "no")
    assert len(lines_of(caplog)) == MAX_OF_ADDRESS
    for number in range(1000):
        refusals.report(f"10.0.{number // 256}.{number % 256}", "/v1/models", "no")
    told = lines_of(caplog)
    assert len(told) == MAX_LINES
    assert told[MAX_OF_ADDRESS]["num_unlogged"] == 1000 - MAX_OF_ADDRESS
    now += INTERVAL
    refusals.report("192.0.2.1", "/v1/models", "no")
    (*_, last) = lines_of(caplog)
    assert last["num_unlogged"] == 1000 - (MAX_LINES - MAX_OF_ADDRESS)
    assert sum(one["num_unlogged"] or 0 for one in lines_of(caplog)) + len(lines_of(caplog)) == 2001
