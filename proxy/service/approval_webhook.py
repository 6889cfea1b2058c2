"""Tells a program of the operator's about the tool calls that wait, and takes its answer if it has one."""

import hashlib
import hmac
import logging
from typing import Annotated, Any

import aiohttp
import orjson
from pydantic import BaseModel, Field, SecretStr, StrictBool, ValidationError

logger = logging.getLogger("weir.proxy")

SIGNATURE = "X-Weir-Signature"
"""`sha256=` and the hexadecimal HMAC-SHA256 of the body with the setting `approval_webhook_key`."""
MAX_ANSWER = 64 * 1024
"""Bytes of an answer."""


class WebhookAnswer(BaseModel):
    approve: StrictBool
    digest: Annotated[str, Field(max_length=64)]
    """The digest of the call that the answer is about."""
    by: Annotated[str, Field(max_length=256)] = "webhook"
    """Who decided."""


class Webhook:
    def __init__(self, url: SecretStr, key: SecretStr | None, timeout: float) -> None:
        """`timeout`: seconds for an answer, which may wait for a person."""
        self._url, self._key = url, key
        self._timeout = aiohttp.ClientTimeout(total=timeout, connect=10.0)
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, call: dict[str, Any]) -> WebhookAnswer | None:
        """The answer, or None: the webhook has none, or it failed, which the log says."""
        body = orjson.dumps(call)
        headers = {"Content-Type": "application/json"}
        if self._key is not None:
            digest = hmac.new(self._key.get_secret_value().encode(), body, hashlib.sha256).hexdigest()
            headers[SIGNATURE] = f"sha256={digest}"
        if self._session is None:
            # No limit of connections: each call may wait for a person, and `max_waiting_calls` bounds them.
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(connector=connector, timeout=self._timeout)
        url = self._url.get_secret_value()
        try:
            async with self._session.post(url, data=body, headers=headers, allow_redirects=False) as got:
                if got.status in (202, 204):
                    return None
                if got.status != 200:
                    return self._failed(f"status {got.status}")
                text = await got.content.read(MAX_ANSWER + 1)
                while len(text) <= MAX_ANSWER and (more := await got.content.read(MAX_ANSWER + 1)):
                    text += more
                if len(text) > MAX_ANSWER:
                    return self._failed("its answer is too long")
                return WebhookAnswer.model_validate_json(text)
        except (aiohttp.ClientError, TimeoutError, ValidationError) as error:
            return self._failed(type(error).__name__)

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    @staticmethod
    def _failed(reason: str) -> None:
        logger.warning("the approval webhook did not decide (%s); the operator still can", reason)
