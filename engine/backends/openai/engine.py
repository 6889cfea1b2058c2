"""The engine that asks an OpenAI-compatible upstream: connections, health, and failures of the network."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson

from engine.backends.openai.errors import stream_error, upstream_error
from engine.backends.openai.request import request_body
from engine.backends.openai.sse import Event, SSEDecoder
from engine.backends.openai.stream import StreamTranslator
from engine.backends.request_tracker import TrackedEngine, refuse_logits_processors
from engine.protocol import Deltas, EngineError, GenerationRequest, ModelInfo, RequestError

_KEEPALIVE = 4.0
"""Seconds that an idle connection is kept. uvicorn closes idle connections after 5, so ours close first."""
_DRAIN = 0.02
"""Seconds that the engine waits for a stream's end after its `[DONE]`, to be able to keep the connection."""
_UNHEALTHY = 10.0
"""Seconds that the engine reports itself unhealthy after a failed connection."""

_log = logging.getLogger("weir.engine")


class OpenAIEngine(TrackedEngine):
    """Asks an upstream for a stream, for every request, and translates the stream.

    `upstream`: the upstream's URL, as a client's `base_url`. A URL without a path gets `/v1`. `model`: the
    upstream's name for the model. None: the name that the caller gives. `timeout`: seconds without a byte
    from the upstream; `connect_timeout`: seconds to connect.
    """

    def __init__(
        self,
        upstream: str,
        *,
        api_key: str | None = None,
        model: str | None = None,
        timeout: float = 600.0,
        connect_timeout: float = 10.0,
    ) -> None:
        if urlsplit(upstream).scheme not in ("http", "https"):
            raise ValueError(f"{upstream!r} is no http or https URL.")
        super().__init__()
        self.url = upstream.rstrip("/") + ("" if urlsplit(upstream).path.strip("/") else "/v1")
        self.model = model
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout, sock_read=timeout)
        self._session: aiohttp.ClientSession | None = None
        self._failed_at: float | None = None

    async def start(self) -> None:
        """Open the connection pool, and ask for the upstream's models. Succeeds if the upstream is down."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE),
            headers={"Accept-Encoding": "identity", **self._headers},
            timeout=self._timeout,
        )
        try:
            with self._engine_errors():
                self.info = await self._served(self._session)
        except EngineError as error:
            _log.warning("upstream %s: %s", self.url, error)

    async def generate(self, request: GenerationRequest) -> Deltas:
        refuse_logits_processors(request)
        fields = request_body(request, self.model)
        body = orjson.dumps(fields, default=dict)
        path = "/chat/completions" if request.is_chat else "/completions"
        translator = StreamTranslator(request)
        has_begun = is_complete = False
        with self._requests.track() as tracked, self._engine_errors():
            async with await self._requests.wait(self._post(path, body)) as response:
                self._failed_at = None
                if response.status != 200:
                    raise upstream_error(response.status, await response.read(), fields)
                async for event in self._events(response):
                    if event.data.strip() == b"[DONE]":
                        is_complete = True
                        break
                    chunk = _loads(event.data)
                    if event.event == "error" or chunk.get("error"):
                        raise stream_error(chunk, begun=has_begun, fields=fields)
                    for delta in translator.feed(chunk):
                        has_begun = True
                        tracked.usage = delta.usage or tracked.usage
                        yield delta
                for delta in translator.finish(complete=is_complete):
                    tracked.usage = delta.usage or tracked.usage
                    yield delta
                await _drain(response)

    def check_health(self) -> None:
        """Raise `EngineError` if a connection to the upstream failed within the last 10 seconds."""
        super().check_health()
        if self._failed_at is not None and time.monotonic() < self._failed_at + _UNHEALTHY:
            raise EngineError("The upstream engine cannot be reached.", status=503)

    async def aclose(self) -> None:
        await super().aclose()
        if self._session is not None:
            await self._session.close()

    async def _events(self, response: aiohttp.ClientResponse) -> AsyncIterator[Event]:
        decoder = SSEDecoder()
        while data := await self._requests.wait(response.content.readany()):
            for event in decoder.feed(data):
                yield event
        for event in decoder.flush():
            yield event

    def _post(self, path: str, body: bytes) -> aiohttp.client._RequestContextManager:
        if self._session is None:
            raise EngineError("The engine has not been started.", status=503)
        headers = {"Content-Type": "application/json"}
        return self._session.post(self.url + path, data=body, headers=headers, allow_redirects=False)

    async def _served(self, session: aiohttp.ClientSession) -> ModelInfo:
        async with session.get(f"{self.url}/models", timeout=aiohttp.ClientTimeout(total=5.0)) as response:
            if response.status != 200:
                return ModelInfo()
            models = _loads(await response.read()).get("data") or ()
        names = tuple(str(model["id"]) for model in models)
        lengths = [m.get("max_model_len") for m in models if self.model in (None, m["id"])]
        return ModelInfo(max_model_len=lengths[0] if lengths else None, names=names)

    @contextmanager
    def _engine_errors(self) -> Iterator[None]:
        """Turn failures between Weir and the upstream into `EngineError`, with a message for the caller."""
        try:
            yield
        except RequestError:
            raise
        except EngineError:
            self._requests.check()
            raise
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            self._failed_at = time.monotonic()
            self._requests.check()
            raise EngineError("The upstream engine cannot be reached.", status=503) from error
        except TimeoutError as error:
            raise EngineError("The upstream engine did not answer in time.", status=504) from error
        except (aiohttp.ClientError, ConnectionError) as error:
            self._requests.check()
            raise EngineError("The connection to the upstream engine broke.", status=502) from error
        except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
            _log.warning("upstream %s: answer not understood (%s)", self.url, type(error).__name__)
            raise EngineError("The upstream engine's answer makes no sense.", status=502) from error


def _loads(data: bytes) -> dict[str, Any]:
    """Read a JSON object. Python servers also write `-Infinity` and `NaN`, which are not JSON."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        value = json.loads(data, parse_constant=float)
        orjson.dumps(value)  # raises for a text that cannot be written again: half a surrogate pair
    if not isinstance(value, dict):
        raise TypeError("not a JSON object")
    return value


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read the last bytes if they come soon, so that the connection can be used again."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN):
            while not response.content.at_eof():
                await response.content.readany()
