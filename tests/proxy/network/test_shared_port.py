"""Processes that listen on one port."""

import asyncio
import socket
from contextlib import AsyncExitStack, closing
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.network.listener import Listener, ListenError, SharedPort, reserved_sockets
from tests.helpers import until


class Process(list[socket.socket]):
    """One of the processes, and its connections, which it keeps."""

    async def start(self, sockets: list[socket.socket], counts: "memoryview[int]", index: int) -> None:
        no_tls: Any = SimpleNamespace(context=None)
        self.listener = Listener(self, (), lambda _: self, no_tls)  # type: ignore[arg-type,return-value]
        copies = [sock.dup() for sock in sockets]
        await self.listener.start("127.0.0.1", 0, SharedPort(copies, counts, index))

    def make_room(self, _: object) -> None:
        return None

    def serve(self, accepted: socket.socket, _: object) -> None:
        self.append(accepted)

    def close(self) -> None:
        self.listener.close()
        for sock in self:
            sock.close()


async def test_a_connection_goes_to_the_process_with_the_fewest() -> None:
    counts = memoryview(bytearray(8)).cast("I")
    sockets = await reserved_sockets("127.0.0.1", 0)
    processes = Process(), Process()
    async with AsyncExitStack() as stack:
        for index, process in enumerate(processes):
            await process.start(sockets, counts, index)
            stack.callback(process.close)
        for expected in range(1, 7):
            _, writer = await asyncio.open_connection(*sockets[0].getsockname())
            stack.callback(writer.close)
            await until(lambda expected=expected: sum(map(len, processes)) == expected)
        assert [len(process) for process in processes] == [3, 3]
        sockets[0].close()


async def test_a_process_that_hangs_with_the_fewest_connections_leaves_new_ones_to_the_others() -> None:
    counts = memoryview(bytearray(8)).cast("I")
    sockets = await reserved_sockets("127.0.0.1", 0)
    process = Process()
    async with AsyncExitStack() as stack:
        await process.start(sockets, counts, 0)
        stack.callback(process.close)
        for _ in range(40):
            _, writer = await asyncio.open_connection(*sockets[0].getsockname())
            stack.callback(writer.close)
        await until(lambda: len(process) == 40)
        sockets[0].close()


async def test_a_port_where_another_program_listens_meanwhile_is_an_error() -> None:
    (sock,) = await reserved_sockets("127.0.0.1", 0)
    process = Process()
    with sock, socket.create_server(sock.getsockname()), closing(process):
        with pytest.raises(ListenError, match="in use"):
            await process.start([sock], memoryview(bytearray(4)).cast("I"), 0)
