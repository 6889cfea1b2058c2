"""Stands between an agent and Weir: records the agent's requests, and passes everything on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

from tests.clients.agent import MODES
from tests.clients.engines import Weir
from tests.clients.model import GATE
from tests.clients.session import HEADERS, Request


class Recorder:
    """Holds the model back while a client is about to leave (`Gate`)."""

    def __init__(self, weir: Weir, http: aiohttp.ClientSession) -> None:
        self.requests: list[Request] = []
        self.url = ""
        self._weir = weir
        self._http = http

    async def handle(self, asked: web.Request) -> web.StreamResponse:
        body = await asked.read()
        headers = {name: asked.headers[name] for name in HEADERS if name in asked.headers}
        leaves = MODES[len(self.requests)] == "leave"
        self.requests.append(Request(asked.method, asked.path_qs, headers, body.decode(), leaves))
        if leaves:
            GATE.close()
        else:
            await self._weir.wait_until_idle()
        url = self._weir.url + asked.path_qs
        async with self._http.request(asked.method, url, data=body, headers=headers) as answer:
            response = web.StreamResponse(status=answer.status)
            response.content_type = answer.content_type
            await response.prepare(asked)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            return response


@asynccontextmanager
async def recording(weir: Weir) -> AsyncIterator[Recorder]:
    """A recorder of one session, listening."""
    async with aiohttp.ClientSession() as http:
        recorder = Recorder(weir, http)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", recorder.handle)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        recorder.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield recorder
        finally:
            await runner.cleanup()
