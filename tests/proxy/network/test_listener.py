"""Connections of a server whose process may open few files, started as users start it."""

import http.client
import json
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from proxy.network.listener import bound_sockets
from tests.processes import killed_at_end
from tests.weir import PipedWeir

EATS_FILES = """
import os
from hooks import emit

class Eats:
    def __init__(self):
        opened = []
        try:
            while True:
                opened.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            for descriptor in opened[-{left}:]:
                os.close(descriptor)
    def __call__(self, chunk):
        return emit(chunk.pending)
"""


@contextmanager
def weir(files: int, *options: str) -> Iterator[tuple[PipedWeir, int]]:
    limit = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (files, files))
    command = ("serve", "--engine", "echo", "--port", "0", *options)
    with killed_at_end(PipedWeir(*command, before=limit)) as process:
        yield process, int(process.stdout.readline().split("/v1")[0].rpartition(":")[2])


def get_health(port: int) -> int:
    asked = http.client.HTTPConnection("127.0.0.1", port)
    try:
        asked.request("GET", "/health")
        return asked.getresponse().status
    except ConnectionError:  # refused so early that the request was not read
        return 503
    finally:
        asked.close()


def stderr_of(process: PipedWeir) -> list[str]:
    process.terminate()
    return process.communicate()[1].splitlines()


def half_heads(stack: ExitStack, port: int, count: int) -> list[socket.socket]:
    sockets = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(count)]
    for sock in sockets:
        try:
            sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        except ConnectionError:  # it has made room already
            continue
    return sockets


def test_half_headers_beyond_the_limit_of_files_keep_nobody_out() -> None:
    with weir(128) as (process, port), ExitStack() as stack:
        half_heads(stack, port, 140)
        assert [get_health(port) for _ in range(5)] == [200] * 5
        half_heads(stack, port, 140)
        assert get_health(port) == 200
        errors = stderr_of(process)
    assert len(errors) <= 2, errors


def test_without_file_descriptors_the_server_logs_once_refuses_and_recovers(tmp_path: Path) -> None:
    (tmp_path / "eats.py").write_text(EATS_FILES.format(left=5))
    with weir(256, "--hook", f"{tmp_path}/eats.py:Eats") as (process, port), ExitStack() as stack:
        for sock in half_heads(stack, port, 40):
            sock.settimeout(30)
        # Half a head takes a descriptor until another connection needs it.
        answers = [get_health(port) for _ in range(20)]
        assert set(answers) <= {200, 503}
        assert 200 in answers
        stack.close()
        while get_health(port) != 200:
            pass
        errors = stderr_of(process)
    assert len([line for line in errors if "cannot be accepted" in line]) == 1
    assert not [line for line in errors if "Traceback" in line]


def test_a_refusal_for_want_of_descriptors_is_an_error_object(tmp_path: Path) -> None:
    (tmp_path / "eats.py").write_text(EATS_FILES.format(left=2))  # for the socket to listen on, and a spare
    with weir(256, "--hook", f"{tmp_path}/eats.py:Eats") as (_, port):
        with socket.create_connection(("127.0.0.1", port)) as sock:
            answer = b""
            while data := sock.recv(4096):
                answer += data
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert json.loads(body)["error"]["type"] == "server_error"


async def test_a_host_name_may_have_several_addresses() -> None:
    sockets = await bound_sockets("localhost", 0)
    assert {sock.getsockname()[0] for sock in sockets} <= {"127.0.0.1", "::1"}
    for sock in sockets:
        sock.close()


async def test_an_address_in_use_is_an_error() -> None:
    (taken,) = await bound_sockets("127.0.0.1", 0)
    with taken, pytest.raises(OSError, match="in use"):
        await bound_sockets("127.0.0.1", taken.getsockname()[1])
