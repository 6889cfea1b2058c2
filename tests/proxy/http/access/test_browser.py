"""Requests that pages of other sites make through a visitor's browser."""

import asyncio
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.http.access.browser import _host_rule, is_loopback
from tests.helpers import ScriptedEngine
from tests.proxy.conftest import CHAT, Client, Serve, hello

CHATS = "/v1/chat/completions"
PAGE = "https://chat.example"


async def ask(client: Client, method: str = "POST", **headers: str) -> tuple[int, Any, Any]:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.http.request(method, client.url + CHATS, json=CHAT, headers=names) as response:
        body = await response.read()
        return response.status, orjson.loads(body) if body else None, response.headers


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:80", "127.8.8.8", "[::1]:1", "a.LOCALHOST."])
async def test_a_server_on_a_loopback_address_answers_loopback_names(serve: Serve, host: str) -> None:
    client = await serve(ScriptedEngine(hello))
    assert (await ask(client, Host=host))[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "10.0.0.1:80", "127.0.0.1.x.io", "[::1].evil"]
)
@pytest.mark.parametrize("path", [CHATS, "/health", "/v1/models", "/nothing"])
async def test_a_server_on_a_loopback_address_refuses_other_names(serve: Serve, host: str, path: str) -> None:
    """The name may be an attacker's own, which now points to this machine (DNS rebinding)."""
    client = await serve(ScriptedEngine(hello))
    async with client.http.get(client.url + path, headers={"Host": host}) as response:
        assert response.status == 421
        assert (await response.json())["error"]["code"] == "host_not_allowed"


async def test_a_request_without_a_host_is_not_a_browsers(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello))
    host, port = client.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /health HTTP/1.0\r\n\r\n")
    assert b" 200 OK" in await reader.readline()
    writer.close()


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://evil.example/v1/models", "localhost", 421),
        ("http://localhost@evil.example/v1/models", "localhost", 421),
        ("http://localhost:1/v1/models", "evil.example", 200),
        ("//evil.example/v1/models", "localhost", 404),
    ],
)
async def test_the_host_of_a_target_that_is_a_whole_url_counts(
    serve: Serve, target: str, host: str, status: int
) -> None:
    client = await serve(ScriptedEngine(hello))
    address, port = client.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(address, int(port))
    writer.write(f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert (await reader.readline()).split()[1] == str(status).encode()
    writer.close()


async def test_allowed_hosts_are_answered(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), allowed_hosts=["Weir.example"])
    assert [(await ask(client, Host=h))[0] for h in ("weir.example:8000", "localhost", "x")] == [
        200,
        200,
        421,
    ]
    client = await serve(ScriptedEngine(hello), allowed_hosts=["*"])
    assert (await ask(client, Host="x"))[0] == 200


async def test_a_server_on_another_address_answers_all_names_unless_some_are_listed(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), host="0.0.0.0")
    assert (await ask(client, Host="weir.example"))[0] == 200
    client = await serve(ScriptedEngine(hello), host="0.0.0.0", allowed_hosts=["weir.example"])
    assert [(await ask(client, Host=host))[0] for host in ("weir.example", "other.example")] == [200, 421]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": PAGE},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "http://[", "Sec_Fetch_Site": "same-origin"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "OPTIONS"])
async def test_a_page_of_another_site_is_refused(serve: Serve, headers: dict[str, str], method: str) -> None:
    engine = ScriptedEngine(hello)
    client = await serve(engine)
    status, body, answered = await ask(client, method, **headers)
    assert (status, body["error"]["code"]) == (403, "cross_site_request")
    assert not [name for name in answered if name.startswith("Access-Control")]
    assert not engine.requests


async def test_a_page_of_the_servers_own_origin_may_ask(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello))
    own = {"Origin": client.url, "Sec_Fetch_Site": "same-origin"}
    assert [(await ask(client, **h))[0] for h in (own, {"Sec_Fetch_Site": "none"}, {})] == [200, 200, 200]


@pytest.mark.parametrize("stream", [True, False])
async def test_an_allowed_origin_may_read_the_answer(serve: Serve, stream: bool) -> None:
    client = await serve(ScriptedEngine(hello), cors_origins=[PAGE], api_key=["k"])
    body = {**CHAT, "stream": stream}
    for key, status in (("k", 200), ("x", 401)):
        headers = {"Origin": PAGE, "Sec-Fetch-Site": "cross-site", "Authorization": f"Bearer {key}"}
        async with client.http.post(client.url + CHATS, json=body, headers=headers) as response:
            assert response.status == status
            assert response.headers["Access-Control-Allow-Origin"] == PAGE
            assert "Origin" in response.headers["Vary"]
    assert (await ask(client, Origin="https://other.example", Authorization="Bearer k"))[0] == 403


@pytest.mark.parametrize("origin", [{}, {"Origin": PAGE}])
async def test_an_answer_that_depends_on_the_origin_says_so(serve: Serve, origin: dict[str, str]) -> None:
    """Else a cache gives a page the answer to a request without an origin, which the page may not read."""
    client = await serve(ScriptedEngine(hello), cors_origins=[PAGE])
    assert (await ask(client, **origin))[2]["Vary"] == "Origin"


@pytest.mark.parametrize("origins", [[PAGE], ["*"]])
async def test_a_preflight_request_needs_no_key(serve: Serve, origins: list[str]) -> None:
    client = await serve(ScriptedEngine(hello), cors_origins=origins, api_key=["k"])
    asked = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "authorization,x-y"}
    status, _, headers = await ask(client, "OPTIONS", Origin=PAGE, **asked)
    assert status == 204
    assert headers["Access-Control-Allow-Origin"] == PAGE
    assert headers["Access-Control-Allow-Headers"] == "authorization,x-y"
    assert "POST" in headers["Access-Control-Allow-Methods"]


async def test_without_cors_an_answer_has_none_of_its_headers(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello))
    assert not [name for name in (await ask(client))[2] if name.startswith("Access-Control")]


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False), ("", False)],
)
def test_loopback_hosts(host: str, expected: bool) -> None:
    assert is_loopback(host) == expected


PIECES = st.sampled_from(
    [
        "localhost",
        "127.0.0.1",
        "[::1]",
        "::1",
        "evil",
        ".",
        ":",
        "[",
        "]",
        "@",
        "%",
        "/",
        "?",
        " ",
        "\t",
        "80",
        "ü",
    ]
)


@given(st.lists(PIECES, max_size=6).map("".join))
def test_a_host_that_is_answered_is_a_loopback_name_and_a_port(host: str) -> None:
    if _host_rule([], "127.0.0.1")(host):
        url = urlsplit(f"http://{host.strip()}")
        name = (url.hostname or "").rstrip(".")
        assert name == "localhost" or name.endswith(".localhost") or ip_address(name).is_loopback
        assert url.port is None or url.port >= 0


@given(
    st.sampled_from(["localhost", "a.localhost", "127.0.0.1", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]"]),
    st.sampled_from(["", ":"]) | st.integers(0, 65535).map(":{}".format),
)
def test_every_loopback_name_is_answered_with_every_port(name: str, port: str) -> None:
    assert _host_rule([], "127.0.0.1")(name + port)
