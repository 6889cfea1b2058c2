"""Any OpenAI-compatible server as an engine: vLLM, SGLang, TensorRT-LLM, llama.cpp, OpenAI itself.

Only the connection is here. `openai_request` writes what is asked; `sse`, `openai_stream` and `token_aligner`
read what comes back; `upstream_errors` says whose fault a failure is.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson

from engine.backends.activity import Activity
from engine.backends.openai.errors import stream_error, upstream_error
from engine.backends.openai.request import request_body
from engine.backends.openai.sse import Event, SSEDecoder
from engine.backends.openai.stream import StreamTranslator
from engine.backends.refusals import refuse_logits_processors
from engine.protocol import (
    Deltas,
    EngineError,
    EngineStats,
    GenerationRequest,
    ModelInfo,
    RequestError,
    Tokenizer,
)

_KEEPALIVE = 4.0  # seconds; shorter than uvicorn's 5, so that no request meets a connection just closed
_DRAIN = 0.02  # seconds for the end of a stream to follow its `[DONE]`, for the connection to be kept
_UNHEALTHY = 10.0  # seconds after a failed connection; then requests find out anew

_log = logging.getLogger("weir.engine")


class OpenAIEngine:
    """Asks an upstream for a stream, always, and translates it.

    `upstream`: its URL, as a client's `base_url`; without a path, `/v1` is meant. `model`: its name for the
    model; None: whatever the caller names. `timeout`: seconds without a byte from it; `connect_timeout`:
    seconds to connect.
    """

    tokenizer: Tokenizer | None = None

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
        self.info = ModelInfo()
        self.url = upstream.rstrip("/") + ("" if urlsplit(upstream).path.strip("/") else "/v1")
        self.model = model
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout, sock_read=timeout)
        self._session: aiohttp.ClientSession | None = None
        self._activity = Activity()
        self._failed_at: float | None = None

    async def start(self) -> None:
        """Open the connection pool, and ask what is served. An upstream that is down does not fail this."""
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
        asked = request_body(request, self.model)
        body = orjson.dumps(asked, default=dict)
        path = "/chat/completions" if request.is_chat else "/completions"
        translator = StreamTranslator(request)
        has_begun = is_complete = False
        with self._activity.run() as run, self._engine_errors():
            async with await self._activity.wait(self._post(path, body)) as response:
                self._failed_at = None
                if response.status != 200:
                    raise upstream_error(response.status, await response.read(), asked)
                async for event in self._events(response):
                    if event.data.strip() == b"[DONE]":
                        is_complete = True
                        break
                    chunk = _loads(event.data)
                    if event.event == "error" or chunk.get("error"):
                        raise stream_error(chunk, begun=has_begun, asked=asked)
                    for delta in translator.feed(chunk):
                        has_begun = True
                        run.usage = delta.usage or run.usage
                        yield delta
                for delta in translator.finish(complete=is_complete):
                    run.usage = delta.usage or run.usage
                    yield delta
                await _drain(response)

    def stats(self) -> EngineStats:
        return self._activity.stats()

    def check_health(self) -> None:
        """Raise `EngineError` if the upstream could not be reached a moment ago."""
        self._activity.check()
        if self._failed_at is not None and time.monotonic() < self._failed_at + _UNHEALTHY:
            raise EngineError("The upstream engine cannot be reached.", status=503)

    async def aclose(self) -> None:
        self._activity.close()
        if self._session is not None:
            await self._session.close()

    async def _events(self, response: aiohttp.ClientResponse) -> AsyncIterator[Event]:
        decoder = SSEDecoder()
        while data := await self._activity.wait(response.content.readany()):
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
        """What goes wrong between us and the upstream, in words for the caller."""
        try:
            yield
        except RequestError:
            raise
        except EngineError:
            self._activity.check()
            raise
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            self._failed_at = time.monotonic()
            self._activity.check()
            raise EngineError("The upstream engine cannot be reached.", status=503) from error
        except TimeoutError as error:
            raise EngineError("The upstream engine did not answer in time.", status=504) from error
        except (aiohttp.ClientError, ConnectionError) as error:
            self._activity.check()
            raise EngineError("The connection to the upstream engine broke.", status=502) from error
        except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
            _log.warning("upstream %s: answer not understood (%s)", self.url, type(error).__name__)
            raise EngineError("The upstream engine's answer makes no sense.", status=502) from error


def _loads(data: bytes) -> dict[str, Any]:
    """A JSON object. Python servers also write `-Infinity` and `NaN`, which JSON does not have."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        value = json.loads(data, parse_constant=float)
        orjson.dumps(value)  # what could not be written again (half a surrogate pair) is refused here
    if not isinstance(value, dict):
        raise TypeError("not a JSON object")
    return value


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read the last bytes, if they come at once, so that the connection can be used again."""
    try:
        async with asyncio.timeout(_DRAIN):
            while not response.content.at_eof():
                await response.content.readany()
    except TimeoutError:
        pass
