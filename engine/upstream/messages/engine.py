"""The Messages API, as `UpstreamEngine` needs it."""

from collections.abc import Mapping
from typing import Any, ClassVar

from engine.protocol import EngineError, GenerationRequest, RequestError
from engine.upstream.call import Call
from engine.upstream.engine import UpstreamEngine
from engine.upstream.json_text import read_object
from engine.upstream.messages.fields import FIELDS
from engine.upstream.messages.options import MessagesOptions
from engine.upstream.messages.request import count_body, headers_of, request_body
from engine.upstream.messages.signatures import Signatures
from engine.upstream.messages.stream import StreamTranslator
from engine.upstream.sse import Event
from engine.upstream.usage import count_in

_LAST = b'"message_stop"'


class MessagesEngine(UpstreamEngine):
    """A server of the Messages API. A URL without `/v1` at its end gets it, as from the API's clients.

    `messages`: what the API needs and a caller may not say.
    """

    fields = FIELDS
    _models_path = "/models?limit=1000"
    error_statuses: ClassVar[Mapping[str, int]] = {
        "invalid_request_error": 400,
        "authentication_error": 401,
        "permission_error": 403,
        "not_found_error": 404,
        "request_too_large": 413,
        "rate_limit_error": 429,
        "timeout_error": 504,
        "overloaded_error": 529,
    }

    def __init__(self, upstream: str, *, messages: MessagesOptions | None = None, **settings: Any) -> None:
        super().__init__(upstream, **settings)
        self._messages = messages or MessagesOptions()
        self._headers["anthropic-version"] = self._messages.upstream_version
        self._signatures = Signatures()

    async def count_tokens(self, request: GenerationRequest) -> int:
        return await self._system_order.ask(request, self._count)

    async def _count(self, request: GenerationRequest) -> int:
        body = count_body(request_body(request, self._messages, signatures=self._signatures))
        try:
            answer = await self._ask(request, "/messages/count_tokens", body, headers_of(request))
        except RequestError as error:
            own = error.unquoted or error
            if error.status == 404 and own.code != "model_not_found":
                raise EngineError("The upstream engine counts no tokens.", status=501) from error
            raise
        return count_in(answer, "input_tokens")

    @staticmethod
    def _with_version(url: str) -> str:
        return url if url.endswith("/v1") else f"{url}/v1"

    @staticmethod
    def _key_headers(api_key: str) -> dict[str, str]:
        # Servers differ in which of the two they read. Those that read both take the first.
        return {"x-api-key": api_key, "Authorization": f"Bearer {api_key}"} if api_key else {}

    @staticmethod
    def is_last(event: Event) -> bool:
        # Inside of a text, the quotation marks would have backslashes.
        return _LAST in event.data and bool(read_object(event.data)["type"] == "message_stop")

    def call(self, request: GenerationRequest) -> Call:
        fields = request_body(request, self._messages, self.model, self._signatures)
        translator = StreamTranslator(request, self._options, self._signatures)
        return Call("/messages", fields, translator, headers_of(request))
