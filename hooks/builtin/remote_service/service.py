"""The connections to a service that judges texts."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import aiohttp
from yarl import URL

from hooks import trace_headers
from hooks.builtin.remote_service.authorization import Authorize

MAX_ANSWER = 8 * 1024 * 1024
"""Most bytes of an answer."""


class DetectorError(RuntimeError):
    """The service did not answer in the form of its API. The message contains no part of the text."""


def whole_url(text: str) -> URL:
    """Raises `ValueError` for an incomplete URL. Escapes stay as they are written: AWS signs them."""
    try:
        url = URL(text, encoded="%" in text)
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError("url is a whole one, as http://127.0.0.1:8080/v1/moderations")
    return url


class DetectorService:
    """One URL to post JSON to. The event loop that uses the service makes the connections."""

    def __init__(self, url: URL, timeout: float, max_connections: int, authorize: Authorize) -> None:
        """`timeout`: seconds for one `post`."""
        self._url = url
        self._timeout = timeout
        self._max_connections = max_connections
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        self._authorize = authorize
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def post(self, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> bytes:
        """Return the answer's body. Raises `DetectorError` for a status other than 200, `TimeoutError` after
        the timeout, and `aiohttp.ClientError` if the connection breaks twice."""
        data = json.dumps(body).encode()
        all_headers = {**self._headers, **self._authorize(data), **(headers or {}), **trace_headers()}
        async with asyncio.timeout(self._timeout):
            try:
                return await self._post(data, all_headers)
            except aiohttp.ClientConnectionError:
                # The request has no answer yet, and judging a text twice changes nothing. The service has
                # often closed a connection that was kept open.
                return await self._post(data, all_headers)

    async def close(self) -> None:
        """Close the connections. A later `post` makes new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _post(self, data: bytes, headers: Mapping[str, str]) -> bytes:
        # No redirects are followed: the text is for this service alone.
        request = self._here().post(self._url, data=data, headers=headers, allow_redirects=False)
        async with request as response:
            if response.status != 200:
                raise DetectorError(f"the service answered with status {response.status}")
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise DetectorError("the service's answer is compressed, which was not asked for")
            return await _whole(response.content)

    def _here(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            self._loop = loop
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._max_connections),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        return self._session


async def _whole(answer: aiohttp.StreamReader) -> bytes:
    """Read an answer. Raises `DetectorError` after `MAX_ANSWER` bytes, without reading the rest."""
    pieces = bytearray()
    async for piece in answer.iter_any():
        pieces += piece
        if len(pieces) > MAX_ANSWER:
            raise DetectorError(f"the service's answer has more than {MAX_ANSWER} bytes")
    return bytes(pieces)
