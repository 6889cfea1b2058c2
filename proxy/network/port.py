"""An application on a socket."""

import logging

from aiohttp import web

from proxy.network.addresses import Networks
from proxy.network.connections import Connection, Connections
from proxy.network.listener import Listener, SharedPort, base_url
from proxy.network.tls import Certificates

# The middleware and `Connection` answer and log errors. aiohttp's own lines would repeat what a client sent.
_HTTP_LOG = logging.getLogger("weir.http")
_HTTP_LOG.setLevel(logging.CRITICAL)


class Port:
    """Serves one application, within the limits of `connections`, which other ports may share."""

    def __init__(
        self, app: web.Application, connections: Connections, forwarders: Networks, certificates: Certificates
    ) -> None:
        # Without `handler_cancellation`, a disconnect is noticed only at the next write.
        self._runner = web.AppRunner(app, handler_cancellation=True)
        self._connections = connections
        self._certificates = certificates
        self._listener = Listener(connections, forwarders, self._connection, certificates)

    async def start(self, host: str, port: int, shared: SharedPort | None = None) -> str:
        """Listen, as `Listener.start` does. Returns the base URL. Raises `OSError`."""
        await self._runner.setup()
        address = await self._listener.start(host, port, shared)
        return base_url(*address, over_tls=self._certificates.context is not None)

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.close()

    async def aclose(self) -> None:
        self.close()
        await self._runner.cleanup()

    def _connection(self, address: str | None) -> Connection:
        manager = self._runner.server
        assert manager is not None
        # With auto_decompress, aiohttp would unpack a compressed body, or fail, before a handler could refuse
        # the body with an error object.
        return Connection(
            self._connections, address, manager, auto_decompress=False, access_log=None, logger=_HTTP_LOG
        )
