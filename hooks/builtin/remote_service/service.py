"""A service that judges texts, on the other end of a few connections."""

import asyncio
import json
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp

MAX_ANSWER = 8 * 1024 * 1024
"""Bytes of an answer, as it is when it has been decompressed."""


class DetectorError(RuntimeError):
    """The service did not answer as its API says. The message holds nothing of the text."""


class DetectorService:
    """One URL to post JSON to. Its connections are made on the event loop that it is first used on."""

    def __init__(self, url: str, timeout: float, max_connections: int, api_key_env: str | None) -> None:
        """`timeout`: seconds for one `post`. `api_key_env`: the environment variable that holds the key.
        Raises `ValueError` for a URL that is not whole, or a variable that is not set."""
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise ValueError(f"url is a whole one, as http://127.0.0.1:8080/v1/moderations, not {url!r}")
        self._url = url
        self._timeout = timeout
        self._max_connections = max_connections
        self._headers = {"Content-Type": "application/json"}
        if api_key_env is not None:
            if not (key := os.environ.get(api_key_env)):
                raise ValueError(f"the environment variable {api_key_env} is not set")
            self._headers["Authorization"] = f"Bearer {key}"
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def post(self, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> bytes:
        """The body of the answer. Raises `DetectorError` for a status that is not 200, `TimeoutError` if it
        takes longer than the timeout, and `aiohttp.ClientError` if the connection breaks twice."""
        data, all_headers = json.dumps(body).encode(), {**self._headers, **(headers or {})}
        async with asyncio.timeout(self._timeout):
            try:
                return await self._post(data, all_headers)
            except aiohttp.ClientConnectionError:
                # It has not been answered, and to judge a text twice changes nothing. A connection that was
                # kept open is often found closed like this.
                return await self._post(data, all_headers)

    async def close(self) -> None:
        """Close the connections. More are made if more is asked."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _post(self, data: bytes, headers: Mapping[str, str]) -> bytes:
        # Not to where it may redirect: the text is for this service alone.
        request = self._here().post(self._url, data=data, headers=headers, allow_redirects=False)
        async with request as response:
            if response.status != 200:
                raise DetectorError(f"the service answered with status {response.status}")
            return await _whole(response.content)

    def _here(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            self._loop = loop
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._max_connections),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


async def _whole(answer: aiohttp.StreamReader) -> bytes:
    """Raises `DetectorError` for one of more than `MAX_ANSWER` bytes, and has not read it all then."""
    pieces = bytearray()
    async for piece in answer.iter_any():
        pieces += piece
        if len(pieces) > MAX_ANSWER:
            raise DetectorError(f"the service's answer has more than {MAX_ANSWER} bytes")
    return bytes(pieces)
