"""Hostile bodies and raw requests get an answer that is not the server's fault, and leave nothing behind."""

from collections.abc import Callable

import aiohttp
import pytest

from tests.abuse.held import held, returns_to
from tools.abuse.hostile import answer_to, error_in, send_many
from tools.abuse.server import Served

SMALL = ("--max-model-len", "64", "--hook", "secrets")


async def test_hostile_requests_get_no_server_error_and_leave_nothing(
    server_of: Callable[..., Served],
) -> None:
    server = server_of(*SMALL)
    async with aiohttp.ClientSession() as http:
        before = await held(server, http)
        descriptors = server.num_descriptors
    send_many(server.url, 300, derandomize=True)
    async with aiohttp.ClientSession() as http:
        await returns_to(server, http, before, descriptors)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n\r\n{}", b"HTTP/1.1 413 Too large\r\n\r\n"])
def test_an_answer_may_blame_the_client(answer: bytes) -> None:
    assert error_in(answer, left=False) is None


@pytest.mark.parametrize(
    "answer",
    [
        b"Traceback",
        b"HTTP/1.1 500 Internal\r\n\r\n",
        b'HTTP/1.1 200 OK\r\n\r\ndata: {"error": {"type": "server_error"}}\n\n',
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\n\n",
    ],
)
def test_an_answer_may_show_the_servers_fault(answer: bytes) -> None:
    assert error_in(answer, left=False)


def test_a_whole_request_is_answered(server_of: Callable[..., Served]) -> None:
    sent = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    assert answer_to(server_of(*SMALL).url, sent, ends=False).startswith(b"HTTP/1.1 200 OK\r\n")
