"""The sockets that the service listens on.

asyncio's own server logs a trace for every connection that it cannot accept, and it has no limits. This one
refuses connections over the limits, and those for which no file descriptor is left, with an error object.
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.network.addresses import Networks, address_group, is_forwarder, read_address
from proxy.network.connections import Connection, Connections
from proxy.network.tls import Certificates
from proxy.wire.errors import APIError

BACKLOG = 128
BATCH = 16
"""Connections that are accepted before other work has its turn."""
GIVE_WAY = 0.002
"""Seconds for which a process with more connections than another leaves a new one to that other process."""
RETRY_DELAY = 0.1
"""Seconds before the next attempt to accept, when no file descriptor is left."""
MAX_REFUSED = 32
"""Refused connections that stay open for `REFUSED_SECONDS`, so that their clients can read why."""
REFUSED_SECONDS = 1.0
LOG_INTERVAL = 60.0

logger = logging.getLogger("weir.proxy")

_FULL = APIError(503, "The server has too many connections.", "server_error", retry_after=1)


@dataclass(frozen=True, slots=True)
class SharedPort:
    """A port that several processes listen on, through the same sockets.

    The kernel keeps new connections in one queue, from which each process takes its own: one that hangs takes
    none. The process with the fewest connections is the first of the rest to take one.
    """

    sockets: Sequence[socket.socket]
    """They are bound."""
    counts: "memoryview[int]"
    """The connections of each process, in memory that all of them share."""
    index: int
    """The place of this process in `counts`."""

    def has_more(self, count: int) -> bool:
        """Whether another process has fewer connections than this one, which has `count`. Shows its peers
        this number."""
        self.counts[self.index] = count
        return count > min(self.counts)


class Listener:
    """Accepts connections, within the limits of `connections`."""

    def __init__(
        self,
        connections: Connections,
        forwarders: Networks,
        make: Callable[[str | None], Connection],
        certificates: Certificates,
    ) -> None:
        """`make` gives the protocol of a connection. It takes the client's address, or None if a trusted
        forwarder connects."""
        self._connections = connections
        self._forwarders = forwarders
        self._make = make
        self._certificates = certificates
        self._sockets: list[socket.socket] = []
        self._shared: SharedPort | None = None
        self._refused: deque[socket.socket] = deque()
        self._spare = -1
        self._logged_at: dict[str, float] = {}

    async def start(self, host: str, port: int, shared: SharedPort | None = None) -> tuple[str, int]:
        """Listen, at the sockets of `shared` if other processes listen there as well. Returns the first
        address. Raises `ListenError` if an address cannot be used."""
        self._loop = asyncio.get_running_loop()
        self._shared = shared
        if shared is None:
            self._sockets = await bound_sockets(host, port)
        else:
            self._sockets = list(shared.sockets)
            _listen_together(shared, host, port)
        self._spare = _spare_descriptor()
        for sock in self._sockets:
            self._listen(sock)
        address: tuple[str, int] = self._sockets[0].getsockname()[:2]
        return address

    def close(self) -> None:
        """Accept no more connections."""
        for sock in (*self._sockets, *self._refused):
            if sock.fileno() >= 0:
                self._loop.remove_reader(sock)
                sock.close()
        self._sockets.clear()
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1

    def _listen(self, sock: socket.socket) -> None:
        if sock in self._sockets:
            self._loop.add_reader(sock, self._accept, sock)

    def _accept(self, sock: socket.socket) -> None:
        for _ in range(BATCH):
            if self._shared and self._shared.has_more(len(self._connections)):
                self._loop.remove_reader(sock)
                self._loop.call_later(GIVE_WAY, self._accept_last, sock)
                return
            if not self._accept_one(sock):
                return

    def _accept_last(self, sock: socket.socket) -> None:
        """Accept the connection that no process with fewer connections has accepted: it may hang."""
        if sock in self._sockets:
            self._listen(sock)
            self._accept_one(sock)

    def _accept_one(self, sock: socket.socket) -> bool:
        """Returns whether there was a connection."""
        try:
            accepted, peer = sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as error:
            self._cannot_accept(sock, error)
            return False
        self._take(accepted, peer[0])
        return True

    def _take(self, accepted: socket.socket, peer: str) -> None:
        address = self._address(peer)
        if error := self._connections.make_room(address):
            self._log_rarely("a connection is refused: %s", error)
            self._refuse(accepted, error)
            return
        self._make(address).serve(accepted, self._certificates.context)

    def _address(self, peer: str) -> str | None:
        address = read_address(peer)
        if is_forwarder(address, self._forwarders):
            return None
        return address_group(address) if address else peer

    def _refuse(self, accepted: socket.socket, error: APIError) -> None:
        if self._certificates.context is not None:
            accepted.close()  # words would take a handshake
            return
        _send(accepted, error)
        self._refused.append(accepted)
        self._loop.call_later(REFUSED_SECONDS, accepted.close)
        if len(self._refused) > MAX_REFUSED:
            self._refused.popleft().close()

    def _cannot_accept(self, sock: socket.socket, error: OSError) -> None:
        """Use the spare descriptor to refuse the connection, and make room for the next one."""
        self._log_rarely("connections cannot be accepted: %s", error.strerror)
        self._loop.remove_reader(sock)
        self._loop.call_later(RETRY_DELAY, self._listen, sock)
        if error.errno in (errno.EMFILE, errno.ENFILE):
            self._connections.close_one()
            self._refuse_with_spare(sock)

    def _refuse_with_spare(self, sock: socket.socket) -> None:
        while self._refused:
            self._refused.popleft().close()
        if self._spare >= 0:
            os.close(self._spare)
        with contextlib.suppress(OSError), sock.accept()[0] as accepted:
            if self._certificates.context is None:
                _send(accepted, _FULL)
        self._spare = _spare_descriptor()

    def _log_rarely(self, message: str, detail: object) -> None:
        """Log each message at most once a minute."""
        now = time.monotonic()
        if now - self._logged_at.get(message, -LOG_INTERVAL) >= LOG_INTERVAL:
            self._logged_at[message] = now
            logger.warning(message, detail)


def base_url(host: str, port: int, *, over_tls: bool) -> str:
    return f"http{'s' if over_tls else ''}://{f'[{host}]' if ':' in host else host}:{port}"


class ListenError(OSError):
    """The service cannot listen at an address. The message says at which one, and why."""


async def check_free(host: str, port: int) -> None:
    """Raise `ListenError` if anybody listens on the port, or it cannot be used for another reason."""
    for sock in await reserved_sockets(host, port):
        sock.close()


async def reserved_sockets(host: str, port: int) -> list[socket.socket]:
    """Sockets that keep all addresses of `host` for processes that share them. They do not listen.

    Raises `ListenError` if anybody listens there already.
    """
    return await bound_sockets(host, port, _reserved)


def _listening(address: Any, *, family: socket.AddressFamily) -> socket.socket:
    return socket.create_server(address, family=family, backlog=BACKLOG)


def _reserved(address: Any, *, family: socket.AddressFamily) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


async def bound_sockets(
    host: str, port: int, make: Callable[..., socket.socket] = _listening
) -> list[socket.socket]:
    """Sockets for all addresses of `host`. A family that the machine does not have is left out. Raises
    `ListenError`."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ListenError(f"the host {host} has no address: {error.strerror}") from error
    sockets: list[socket.socket] = []
    failure: OSError | None = None
    for family, address in dict.fromkeys((info[0], info[4]) for info in found):
        try:
            sock = make(address, family=family)
        except OSError as error:
            failure = error
            if error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                continue
            break
        sock.setblocking(False)
        sockets.append(sock)
    else:
        if sockets:
            return sockets
    for sock in sockets:
        sock.close()
    raise _listen_error(host, port, failure) from failure


def _listen_together(shared: SharedPort, host: str, port: int) -> None:
    for sock in shared.sockets:
        try:
            sock.listen(BACKLOG * len(shared.counts))
        except OSError as error:
            raise _listen_error(host, port, error) from error


def _listen_error(host: str, port: int, error: OSError | None) -> "ListenError":
    match None if error is None else error.errno:
        case None:
            reason = "the host has no address"
        case errno.EADDRINUSE:
            reason = "the port is in use; another program listens there"
        case errno.EACCES:
            reason = "this user may not use the port"
        case number:
            reason = os.strerror(number)
    return ListenError(f"cannot listen on port {port} of {host or 'all addresses'}: {reason}")


def _send(accepted: socket.socket, error: APIError) -> None:
    accepted.setblocking(False)
    with contextlib.suppress(OSError):
        accepted.send(error.raw())
        accepted.shutdown(socket.SHUT_WR)
        accepted.recv(65536)  # closing with unread data would reset the connection, and the answer be lost


def _spare_descriptor() -> int:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
