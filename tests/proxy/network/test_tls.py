"""TLS on real sockets: certificates, clients' certificates, clients that are slow or speak something else."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import trustme
from cryptography.hazmat.primitives import serialization as forms
from pydantic import ValidationError

from proxy.http.app import Ending
from proxy.network.tls import Certificates, make_context
from proxy.settings.serve import ServeSettings
from tests.helpers import ScriptedEngine, make_deltas, until
from tests.processes import WAIT_LIMIT
from tests.proxy.conftest import CHAT, Client, Serve, hello
from tests.proxy.network.test_connections import address_of, post
from tests.serving import serving
from tests.weir import run_weir

CHATS = "/v1/chat/completions"
NEVER = 3600.0


@dataclass
class Files:
    """A certificate of 127.0.0.1 and its authority, as an operator has them."""

    folder: Path
    authority: trustme.CA

    def __post_init__(self) -> None:
        self.authority.cert_pem.write_to_path(self.folder / "ca.pem")
        self.issue()

    def issue(self) -> None:
        """A new certificate and key in the same files."""
        issued = self.authority.issue_cert("127.0.0.1")
        issued.cert_chain_pems[0].write_to_path(self.folder / "cert.pem")
        issued.private_key_pem.write_to_path(self.folder / "key.pem")

    @property
    def options(self) -> dict[str, Any]:
        return {"ssl_certfile": self.folder / "cert.pem", "ssl_keyfile": self.folder / "key.pem"}

    @property
    def client_options(self) -> dict[str, Any]:
        return {**self.options, "ssl_ca_certs": self.folder / "ca.pem"}

    def client(self, certified_by: trustme.CA | None = None) -> ssl.SSLContext:
        """What a client uses; with a certificate of an authority."""
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        if certified_by is not None:
            certified_by.issue_cert("client").configure_cert(context)
        return context


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(tmp_path: Path, authority: trustme.CA) -> Files:
    return Files(tmp_path, authority)


@asynccontextmanager
async def connected(
    client: Client, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*address_of(client), ssl=context)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def num_connections(client: Client) -> int:
    return len(client.server.connections)


async def health(client: Client, context: ssl.SSLContext) -> int:
    status, _ = await client.get("/health", ssl=context)
    return status


@pytest.mark.parametrize("stream", [True, False])
async def test_answers_come_over_tls(serve: Serve, files: Files, stream: bool) -> None:
    client = await serve(ScriptedEngine(hello), **files.options)
    assert client.url.startswith("https://")
    async with client.http.post(
        client.url + CHATS, json={**CHAT, "stream": stream}, ssl=files.client()
    ) as response:
        assert b"Hello" in await response.read()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_an_old_version_of_the_protocol_is_refused(serve: Serve, files: Files) -> None:
    client = await serve(ScriptedEngine(hello), **files.options)
    old, new = files.client(), files.client()
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    new.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(aiohttp.ClientError):
        await health(client, old)
    assert await health(client, new) == 200


async def test_authorities_of_clients_make_certificates_required(serve: Serve, files: Files) -> None:
    client = await serve(ScriptedEngine(hello), **files.client_options)
    for context in (files.client(), files.client(certified_by=trustme.CA())):
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await health(client, context)
    assert await health(client, files.client(certified_by=files.authority)) == 200


async def test_the_operators_port_speaks_tls_too_unless_it_is_told_not_to(serve: Serve, files: Files) -> None:
    """An operator who relies on TLS is not downgraded."""
    context = files.client(certified_by=files.authority)
    client = await serve(ScriptedEngine(hello), **files.client_options, admin_port=0)
    assert client.server.admin_url is not None
    assert client.server.admin_url.startswith("https://")
    async with client.http.get(f"{client.server.admin_url}/metrics", ssl=context) as response:
        assert response.status == 200
    with pytest.raises(aiohttp.ClientError):
        await client.http.get(f"{client.server.admin_url}/health", ssl=files.client())
    plain = await serve(ScriptedEngine(hello), **files.client_options, admin_port=0, admin_ssl=False)
    assert plain.server.admin_url is not None
    assert plain.server.admin_url.startswith("http://")
    for path in ("/metrics", "/health", "/ready"):
        async with plain.http.get(plain.server.admin_url + path) as response:
            assert response.status == 200
    assert await health(plain, context) == 200
    with pytest.raises(aiohttp.ClientError):
        await health(plain, files.client())


async def test_a_plain_port_of_operators_that_others_reach_is_told_of(
    serve: Serve, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    await serve(ScriptedEngine(hello), **files.options, admin_port=0, admin_ssl=False, admin_host="0.0.0.0")
    assert "the operator's API speaks plain HTTP, and others reach 0.0.0.0" in caplog.messages


async def test_new_connections_get_the_new_certificate(serve: Serve, files: Files) -> None:
    client = await serve(ScriptedEngine(hello), **files.options)
    async with connected(client, files.client()) as (reader, writer):
        old = writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
        files.issue()
        service = client.server.service
        service.certificates.context = service.certificates.renewed(service.settings)
        async with connected(client, files.client()) as (_, other):
            assert other.get_extra_info("ssl_object").getpeercert()["serialNumber"] != old
        writer.write(post(orjson.dumps(CHAT)))
        assert b" 200 " in await reader.readline()


async def test_a_wrong_new_certificate_leaves_the_old_one(serve: Serve, files: Files) -> None:
    client = await serve(ScriptedEngine(hello), **files.options)
    (files.folder / "cert.pem").write_text("")
    with pytest.raises(ValueError, match="ssl_certfile"):
        client.server.service.certificates.renewed(client.server.service.settings)
    assert await health(client, files.client()) == 200


def test_tls_neither_begins_nor_ends_while_the_service_runs(files: Files) -> None:
    plain, over_tls = ServeSettings(), ServeSettings(**files.options)
    for before, after in ((plain, over_tls), (over_tls, plain)):
        certificates = Certificates(before)
        with pytest.raises(ValueError, match="restart"):
            certificates.renewed(after)
        assert (certificates.context is None) == (before is plain)


# Slow and strange clients.


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"])
async def test_a_handshake_has_the_deadline_of_headers(serve: Serve, files: Files, sent: bytes) -> None:
    client = await serve(ScriptedEngine(hello), **files.options, header_timeout=0.1)
    async with connected(client) as (reader, writer):
        writer.write(sent)
        assert await reader.read() == b""
    await until(lambda: not num_connections(client))


async def test_a_dripping_handshake_does_not_move_its_deadline(serve: Serve, files: Files) -> None:
    client = await serve(ScriptedEngine(hello), **files.options, header_timeout=0.2)
    outgoing = ssl.MemoryBIO()
    hello_of_client = files.client().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        hello_of_client.do_handshake()
    async with connected(client) as (reader, writer):
        over = asyncio.get_running_loop().create_task(reader.read())
        for byte in outgoing.read():
            writer.write(bytes([byte]))
            await asyncio.wait([over], timeout=0.01)
            if over.done():
                break
        assert over.done()
        assert over.exception() is not None or over.result() == b""


async def test_headers_after_a_handshake_are_still_due(serve: Serve, files: Files) -> None:
    client = await serve(ScriptedEngine(hello), **files.options, header_timeout=0.2)
    async with connected(client, files.client()) as (reader, writer):
        writer.write(b"GET /health HTTP/1.1\r\n")
        assert b" 408 " in await reader.readline()


async def test_handshakes_that_do_not_end_keep_nobody_out(serve: Serve, files: Files) -> None:
    client = await serve(ScriptedEngine(hello), **files.options, max_connections=6, header_timeout=NEVER)
    silent = [await asyncio.open_connection(*address_of(client)) for _ in range(10)]
    assert await health(client, files.client()) == 200
    assert num_connections(client) <= 4
    for _, writer in silent:
        writer.close()
    await until(lambda: not num_connections(client))


async def test_a_connection_over_the_limit_is_closed_without_a_word(serve: Serve, files: Files) -> None:
    go = asyncio.Event()
    engine = ScriptedEngine(lambda r: [*make_deltas(["a"], finish=False), go, *make_deltas(["b"])])
    client = await serve(engine, **files.options, max_connections=2)
    async with connected(client, files.client()) as (reader, writer):
        writer.write(post(orjson.dumps({**CHAT, "stream": True})))
        await reader.readline()
        async with connected(client) as (refused, _):
            assert await refused.read() == b""
        go.set()
        await reader.readuntil(b"[DONE]")


@pytest.mark.parametrize("sent", [b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", b"\x00" * 4096])
async def test_what_is_not_tls_is_closed_and_not_logged(
    serve: Serve, files: Files, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client = await serve(ScriptedEngine(hello), **files.options)
    async with connected(client) as (reader, writer):
        writer.write(sent)
        assert b"HTTP" not in await reader.read()
    await until(lambda: not num_connections(client))
    assert not caplog.records


async def test_a_client_that_reads_nothing_is_left(serve: Serve, files: Files) -> None:
    engine = ScriptedEngine(lambda r: make_deltas(["x" * 100_000] * 200))
    client = await serve(engine, **files.options, client_timeout=0.05)
    context = files.client()
    with socket.create_connection(address_of(client), WAIT_LIMIT) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connect = partial(context.wrap_socket, sock, server_hostname="127.0.0.1")
        with await asyncio.to_thread(connect) as wrapped:
            wrapped.sendall(post(orjson.dumps({**CHAT, "stream": True})))
            await until(lambda: bool(engine.requests))
            await until(lambda: not num_connections(client) and not engine.running)
    assert engine.aborted


async def test_a_client_that_does_not_end_the_session_gives_way(serve: Serve, files: Files) -> None:
    """The service says that the session ends, and the client, which reads nothing more, does not answer."""
    client = await serve(
        ScriptedEngine(hello), **files.options, max_connections=2, header_timeout=0.1, client_timeout=NEVER
    )
    context = files.client()
    with socket.create_connection(address_of(client), WAIT_LIMIT) as sock:
        connect = partial(context.wrap_socket, sock, server_hostname="127.0.0.1")
        with await asyncio.to_thread(connect) as wrapped:
            wrapped.sendall(b"GET")
            began = client.server.connections.now
            await until(lambda: client.server.connections.now > began + 0.5)
            assert num_connections(client) == 1
            assert await health(client, context) == 200


async def test_a_service_stops_though_handshakes_do_not_end(serve: Serve, files: Files) -> None:
    client = await serve(ScriptedEngine(hello), **files.options, header_timeout=NEVER, shutdown_timeout=30.0)
    async with connected(client):
        await until(lambda: num_connections(client) == 1)
        began = asyncio.get_running_loop().time()
        await client.server.stop()
        assert asyncio.get_running_loop().time() - began < 10


# The start.


def test_workers_serve_over_tls(files: Files) -> None:
    options = [f"--{name.replace('_', '-')}={file}" for name, file in files.options.items()]
    with serving("--engine", "echo", "--workers", "2", *options) as url:
        assert url.startswith("https://")
        host, port = url.removeprefix("https://").split(":")
        with socket.create_connection((host, int(port))) as sock:
            with files.client().wrap_socket(sock, server_hostname=host) as wrapped:
                wrapped.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                assert wrapped.recv(4096).startswith(b"HTTP/1.1 200")


def test_a_certificate_that_cannot_be_used_is_told_at_the_start(files: Files) -> None:
    ended = run_weir("serve", "--engine", "echo", "--port", "0", "--ssl-certfile", "none.pem")
    assert ended.returncode == 1
    assert ended.stderr == ("weir serve: ssl_certfile: none.pem cannot be read (No such file or directory)\n")


def test_each_file_that_cannot_be_used_is_named(files: Files, authority: trustme.CA) -> None:
    cert, key = files.folder / "cert.pem", files.folder / "key.pem"
    other, empty = files.folder / "other.pem", files.folder / "empty.pem"
    authority.issue_cert("127.0.0.1").private_key_pem.write_to_path(other)
    empty.write_text("")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"ssl_certfile": empty}, "ssl_certfile: .*empty.pem hold no certificate"),
        ({"ssl_certfile": cert}, "ssl_certfile: .*cert.pem hold no certificate in PEM form with a key"),
        ({"ssl_certfile": cert, "ssl_keyfile": empty}, "cert.pem and .*empty.pem hold no"),
        ({"ssl_certfile": cert, "ssl_keyfile": files.folder}, r"ssl_keyfile: .* \(Is a directory\)"),
        ({"ssl_certfile": cert, "ssl_keyfile": other}, "ssl_keyfile: the key does not belong"),
        ({"ssl_certfile": cert, "ssl_keyfile": key, "ssl_ca_certs": empty}, "ssl_ca_certs: .*empty.pem"),
    ]
    for options, error in cases:
        with pytest.raises(ValueError, match=error):
            make_context(ServeSettings(**options))


def test_a_key_with_a_password_needs_it_and_asks_nobody(files: Files) -> None:
    key, locked = files.folder / "key.pem", files.folder / "locked.pem"
    secret = forms.load_pem_private_key(key.read_bytes(), None)
    encryption = forms.BestAvailableEncryption(b"opens")
    locked.write_bytes(secret.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, encryption))
    options: dict[str, Any] = {"ssl_certfile": files.folder / "cert.pem", "ssl_keyfile": locked}
    assert make_context(ServeSettings(**options, ssl_keyfile_password="opens"))
    for password in (None, "another"):
        with pytest.raises(ValueError, match=r"and .*locked\.pem hold no certificate") as raised:
            make_context(ServeSettings(**options, ssl_keyfile_password=password))
        assert "another" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"ssl_keyfile": "key.pem"}, "ssl_keyfile needs .*--ssl-certfile"),
        ({"ssl_ca_certs": "ca.pem"}, "ssl_ca_certs needs .*--ssl-certfile"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ValidationError, match=error):
        ServeSettings(**options)


# The end of the service.


@asynccontextmanager
async def silent(client: Client, context: ssl.SSLContext, sent: bytes) -> AsyncIterator[ssl.SSLSocket]:
    """A client that has sent this and, whatever it gets, never ends the session of TLS."""
    with socket.create_connection(address_of(client)) as sock:
        wrapped = await asyncio.to_thread(
            partial(context.wrap_socket, sock, server_hostname="127.0.0.1", suppress_ragged_eofs=False)
        )
        with wrapped:
            wrapped.settimeout(60)
            wrapped.sendall(sent)
            yield wrapped


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /hea", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"],
    ids=["new", "head", "idle"],
)
async def test_a_session_without_a_request_does_not_delay_the_end(
    serve: Serve, files: Files, sent: bytes
) -> None:
    client = await serve(ScriptedEngine(hello), **files.options, client_timeout=NEVER)
    client.server.ending = Ending(drain=NEVER, notify=NEVER, close=NEVER, leave=NEVER)
    async with silent(client, files.client(), sent) as sock:
        if sent.endswith(b"\r\n\r\n"):
            assert b" 200 " in await asyncio.to_thread(sock.recv, 4096)
        await until(lambda: num_connections(client) == 1)
        await asyncio.wait_for(client.server.stop(), 60)
        while data := await asyncio.to_thread(sock.recv, 65536):
            assert data
    assert num_connections(client) == 0


async def test_the_end_waits_for_a_running_answer_and_not_for_the_end_of_its_session(
    serve: Serve, files: Files
) -> None:
    go = asyncio.Event()
    engine = ScriptedEngine(
        lambda r: [*make_deltas(["a"], finish=False), go, *make_deltas(["x" * 100_000] * 10)]
    )
    client = await serve(engine, **files.options, client_timeout=NEVER)
    client.server.ending = Ending(drain=NEVER, notify=NEVER, close=NEVER, leave=NEVER)
    async with silent(client, files.client(), post(orjson.dumps({**CHAT, "stream": True}))) as sock:
        read = await asyncio.to_thread(sock.recv, 65536)
        stopping = asyncio.get_running_loop().create_task(client.server.stop())
        await until(client.server.service.stopping.is_set)
        go.set()
        while data := await asyncio.to_thread(sock.recv, 65536):
            read += data
        await asyncio.wait_for(stopping, 60)
    assert read.count(b"x" * 1000) >= 900
    assert b"[DONE]" in read
