"""The engine that asks an upstream: connections, health, and failures of the network."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, ClassVar

import aiohttp
import orjson

from engine.protocol import Deltas, EngineError, GenerationRequest, ModelInfo, RequestError
from engine.protocol.errors import not_started
from engine.protocol.fields.asked import check_fields
from engine.protocol.flow import Flow
from engine.protocol.system_messages import SystemMessages
from engine.protocol.tracing import CURRENT_SPAN
from engine.streams.feeding import iterated
from engine.streams.flow import StagedFlow
from engine.turns.fair_threads import FairThreads
from engine.upstream.address import without_password
from engine.upstream.answer import UpstreamAnswer, translated
from engine.upstream.body import Body
from engine.upstream.call import Call
from engine.upstream.certificate import UNTRUSTED, certificate_fault
from engine.upstream.errors import upstream_error
from engine.upstream.health import UNREACHABLE, UpstreamHealth
from engine.upstream.json_text import read_object, strict_json
from engine.upstream.limits import Patience, TooMuchError, UpstreamOptions
from engine.upstream.request_tracker import TrackedEngine, TrackedRequest
from engine.upstream.sse import Event, EventReader, EventTooLongError, SSEDecoder
from engine.upstream.system_order import SystemOrder, order_fault

_KEEPALIVE = 4.0
"""Seconds that an idle connection is kept. uvicorn closes idle connections after 5, so ours close first."""
_DRAIN = 0.02
"""Seconds that the engine waits for a stream to end after its last event, to keep the connection."""
_MAX_ERROR = 64 * 1024
"""Bytes of an upstream's error that are read."""
_ERROR_TIMEOUT = 10.0
"""Seconds that an upstream's error may take to come."""
_MAX_MODELS = 4 * 1024 * 1024
"""Bytes of an upstream's list of models that are read."""
_PROBE_TIMEOUT = aiohttp.ClientTimeout(total=5.0)
_MAX_LENGTH = 2**31
"""No model has a longer context."""

_log = logging.getLogger("weir.engine")


class _NoCookies(aiohttp.DummyCookieJar):
    """Keeps no cookies: all callers share the session. It does not read them either, because aiohttp logs the
    names of cookies that it cannot read."""

    def update_cookies_from_headers(self, headers: Sequence[str], response_url: Any) -> None:
        pass


class UpstreamEngine(TrackedEngine, ABC):
    """Asks an upstream for a stream, for every request, and translates the stream.

    `upstream`: the upstream's URL, as a client's `base_url`. A user and a password in it become a header, and
    are nowhere else. `model`: the upstream's name for the model. None: the name that the caller gives.
    `connect_timeout`: seconds to connect. `options`: bounds of its answers. `system_messages`: the form of
    chats with more than one.

    Raises `ValueError` for a URL that cannot be used. The message does not quote the URL.
    """

    _models_path = "/models"
    error_statuses: ClassVar[Mapping[str, int]] = {}
    """The HTTP statuses that types of errors stand for inside a stream."""

    def __init__(
        self,
        upstream: str,
        *,
        api_key: str | None = None,
        model: str | None = None,
        connect_timeout: float = 10.0,
        options: UpstreamOptions | None = None,
        system_messages: SystemMessages = "auto",
    ) -> None:
        super().__init__()
        self.info = ModelInfo()
        url, password = without_password(upstream)
        self.url = self._with_version(url)
        self.model = model
        if password and api_key:
            raise ValueError("the upstream has a password in its URL and an API key: give one of them")
        self._headers = {"Authorization": password} if password else self._key_headers(api_key or "")
        self._options = options or UpstreamOptions()
        self._system_order = SystemOrder(system_messages)
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout)
        self._session: aiohttp.ClientSession | None = None
        self.health = UpstreamHealth(self.url, has_key=bool(self._headers))
        self._reader = FairThreads(1)
        """Reads whole answers. One with the logprobs of a long prompt takes seconds."""

    @staticmethod
    @abstractmethod
    def _with_version(url: str) -> str:
        """The URL with the version of the API at its end."""

    @staticmethod
    @abstractmethod
    def _key_headers(api_key: str) -> dict[str, str]:
        """The headers for a key."""

    @staticmethod
    @abstractmethod
    def is_last(event: Event) -> bool:
        """Whether the event ends a stream. Nothing of it is translated."""

    @abstractmethod
    def call(self, request: GenerationRequest) -> Call:
        """Raises `RequestError` for a request that the API cannot express."""

    async def start(self) -> None:
        """Open the connection pool, and ask for the upstream's models. Succeeds if the upstream is down."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE),
            cookie_jar=_NoCookies(),
            headers={"Accept-Encoding": "identity", **self._headers},
            timeout=self._timeout,
            auto_decompress=False,
        )
        try:
            with self.engine_errors():
                self.info = await self._served(self._session)
        except EngineError as error:
            _log.warning("upstream %s: %s", self.url, error)

    def generate(self, request: GenerationRequest) -> Deltas:
        return iterated(StagedFlow(partial(self.feed, request)))

    async def feed(self, request: GenerationRequest, flow: Flow) -> None:
        check_fields(request, self.fields)
        await self._system_order.ask(request, partial(self._feed, flow))

    async def _feed(self, flow: Flow, request: GenerationRequest) -> None:
        call = self.call(request)
        patience = Patience(self._options, asyncio.get_running_loop().time)
        asking = self._asked(request, self.url + call.path, call.fields, call.headers, patience)
        async with asking as (response, tracked):
            events = EventReader(patience, SSEDecoder(self._options.max_upstream_event), self.is_last)
            answer = UpstreamAnswer(call, events, flow, tracked, patience, self.error_statuses)
            with Body(response, self._requests, patience) as body:
                if call.is_whole:
                    data = await body.beginning(self._options.max_upstream_answer)
                    translate = partial(translated, call, [Event(data)], self.error_statuses, has_begun=False)
                    await answer.feed(*await self._reader.run(translate, request.caller))
                else:
                    await answer.feed_stream(body)
            is_complete = call.is_whole or events.is_complete
            await answer.feed(call.translator.finish(complete=is_complete))
            if is_complete and not response.content.at_eof():
                await _drain(response)

    async def _ask(
        self,
        request: GenerationRequest,
        path: str,
        fields: Mapping[str, Any],
        headers: Mapping[str, str] = {},
    ) -> bytes:
        """The answer to `fields`, which is a JSON object and no stream. Raises as `generate` does."""
        fields = {**fields, "model": self.model or request.model}
        patience = Patience(self._options, asyncio.get_running_loop().time)
        asking = self._asked(request, self._url_of(path), fields, headers, patience)
        async with asking as (response, _):
            with Body(response, self._requests, patience) as answer:
                data = await answer.beginning(self._options.max_upstream_answer)
            return strict_json(data)

    @asynccontextmanager
    async def _asked(
        self,
        request: GenerationRequest,
        url: str,
        fields: Mapping[str, Any],
        own: Mapping[str, str],
        patience: Patience,
    ) -> AsyncIterator[tuple[aiohttp.ClientResponse, TrackedRequest]]:
        """Sends `fields` for a request, and counts the request. Yields the answer when its head has come.
        `own`: headers of this request alone. Raises `RequestError` or `EngineError` for an upstream's
        refusal, and for other failures."""
        with self._requests.track() as tracked, self.engine_errors():
            if self._session is None:
                raise not_started()
            headers = {"Content-Type": "application/json", **CURRENT_SPAN.get().headers, **own}
            # No name keeps the body while the answer comes.
            post = self._session.post(
                url, data=orjson.dumps(fields, default=dict), headers=headers, allow_redirects=False
            )
            async with await self._requests.wait(post, patience.deadline) as response:
                self.health.answered(response.status)
                if response.status != 200:
                    body, wait = await self._error_of(response), response.headers.get("Retry-After")
                    error = upstream_error(
                        response.status, body, fields, model=request.model, retry_after=wait
                    )
                    raise error from order_fault(response.status, body)
                yield response, tracked

    def check_health(self) -> None:
        """Raise `EngineError` if the upstream could not be reached, or refused the key, a moment ago."""
        super().check_health()
        self.health.check()

    async def probe(self) -> bool:
        """Ask the upstream how it is, and for its models. Returns False if it takes no new requests: its
        `/health` answers 503. Raises `EngineError` if it cannot serve. Any server may lack `/health`."""
        if (session := self._session) is None:
            raise not_started()
        url = self.url.removesuffix("/v1") + "/health"
        with self.engine_errors():
            async with session.get(url, timeout=_PROBE_TIMEOUT, allow_redirects=False) as response:
                status = response.status
            if status != 503 and status >= 500:
                raise upstream_error(status, b"")
            served = await self._served(session)
        self.info = served if served.names else self.info
        return status != 503

    async def aclose(self) -> None:
        await super().aclose()
        self._reader.close()
        if self._session is not None:
            await self._session.close()

    async def _error_of(self, response: aiohttp.ClientResponse) -> bytes:
        """The body of an error. Empty if it cannot be read, or does not come in time."""
        try:
            async with asyncio.timeout(_ERROR_TIMEOUT):
                with Body(response, self._requests) as body:
                    return await body.beginning(_MAX_ERROR)
        except (ValueError, TimeoutError):
            return b""

    def _url_of(self, path: str) -> str:
        return self.url + path

    async def _served(self, session: aiohttp.ClientSession) -> ModelInfo:
        async with session.get(self.url + self._models_path, timeout=_PROBE_TIMEOUT) as response:
            self.health.listed(response.status)
            if response.status != 200:
                return ModelInfo()
            with Body(response, self._requests) as body:
                data = await body.beginning(_MAX_MODELS)
        listed = read_object(data)
        models = listed.get("data") or ()
        names = () if listed.get("has_more") else tuple(str(model["id"]) for model in models)
        self.health.listed(
            200, lacks_model=bool(names) and self.model is not None and self.model not in names
        )
        lengths = [m.get("max_model_len") for m in models if self.model in (None, m["id"])]
        length = lengths[0] if lengths else None
        is_length = type(length) is int and 0 < length < _MAX_LENGTH
        longest = length if is_length else None
        return ModelInfo(max_model_len=longest, names=names)

    @contextmanager
    def engine_errors(self) -> Iterator[None]:
        """Turn failures between Weir and the upstream into `EngineError`, with a message for the caller."""
        try:
            yield
        except RequestError:
            raise
        except EngineError:
            self._requests.check()
            raise
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            reason = UNTRUSTED if (fault := certificate_fault(error)) else UNREACHABLE
            self._requests.check()
            self.health.failed(fault or UNREACHABLE)
            raise EngineError(f"The upstream engine {reason}.", status=503) from error
        except TimeoutError as error:
            raise EngineError("The upstream engine did not answer in time.", status=504) from error
        except (aiohttp.ClientError, ConnectionError) as error:
            self._requests.check()
            raise EngineError("The connection to the upstream engine broke.", status=502) from error
        except EventTooLongError as error:
            _log.warning("upstream %s: %s", self.url, error)
            raise EngineError("The upstream engine sent an event that is too long.", status=502) from error
        except TooMuchError as error:
            _log.warning("upstream %s: %s", self.url, error)
            raise EngineError("The upstream engine sent more than an answer may have.", status=502) from error
        except (LookupError, ArithmeticError, TypeError, AttributeError, ValueError, RecursionError) as error:
            _log.warning("upstream %s: answer not understood (%s)", self.url, type(error).__name__)
            raise EngineError("The upstream engine sent an invalid response.", status=502) from error


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read the last bytes if they come soon, so that the connection can be used again."""
    with suppress(TimeoutError, aiohttp.ClientError, RuntimeError):  # aiohttp's, if the connection is closed
        async with asyncio.timeout(_DRAIN):
            while not response.content.at_eof():
                await response.content.readany()
