"""OpenAI's API, as `UpstreamEngine` needs it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from engine.protocol import EngineError, GenerationRequest, RequestError
from engine.protocol.fields.asked import ENGINE_FIELDS, SAMPLING_FIELDS
from engine.protocol.fields.names import RELAYED
from engine.protocol.fields.support import FieldSupport
from engine.upstream.call import Call
from engine.upstream.engine import UpstreamEngine
from engine.upstream.openai.options import OpenAIOptions
from engine.upstream.openai.request import request_body
from engine.upstream.openai.stream import StreamTranslator
from engine.upstream.openai.whole import WholeTranslator
from engine.upstream.request_tracker import NO_LOGITS
from engine.upstream.sse import Event
from engine.upstream.usage import count_in

_BESIDE_VERSION = ("/tokenize", "/detokenize")
"""Paths that vLLM has beside `/v1`. Other servers may lack them."""

_OF_ANSWERS = (
    *("audio", "modalities", "moderation", "logprob_token_ids", "return_prompt_text", "return_hidden_states"),
    "enable_response_messages",
)
"""Fields that ask for more than text, tool calls and logprobs. Hooks would not see it (contract 5.3)."""


class OpenAIEngine(UpstreamEngine):
    """An OpenAI-compatible server. A URL without a path gets `/v1`.

    `openai`: what the server gets of a request.
    """

    fields = FieldSupport(
        refused={
            **NO_LOGITS,
            "best_of": "must not exceed n: an upstream cannot stream it",
            **dict.fromkeys(_OF_ANSWERS, "is refused: the answer's part for it is not passed on"),
        },
        relayed=RELAYED | SAMPLING_FIELDS | ENGINE_FIELDS,
    )

    def __init__(self, upstream: str, *, openai: OpenAIOptions | None = None, **settings: Any) -> None:
        super().__init__(upstream, **settings)
        if openai is not None:
            self.fields = replace(self.fields, relayed=self.fields.relayed.union(openai.relay_fields))

    async def relay(self, request: GenerationRequest, path: str, fields: Mapping[str, Any]) -> bytes:
        try:
            return await self._ask(request, path, fields)
        except RequestError as error:
            own = error.unquoted or error
            if path in _BESIDE_VERSION and error.status == 404 and own.code != "model_not_found":
                raise EngineError("The upstream engine has no tokenizer to ask.", status=501) from error
            raise

    async def count_tokens(self, request: GenerationRequest) -> int:
        return await self._system_order.ask(request, self._count)

    async def _count(self, request: GenerationRequest) -> int:
        named = ("add_generation_prompt", "continue_final_message", "chat_template_kwargs")
        body = {name: request.extra[name] for name in named if request.extra.get(name) is not None}
        tools = {"tools": list(request.tools)} if request.uses_tools else {}
        chat = {"messages": list(request.messages), **tools, **body}
        return count_in(await self.relay(request, "/tokenize", chat), "count")

    def _url_of(self, path: str) -> str:
        return (self.url.removesuffix("/v1") if path in _BESIDE_VERSION else self.url) + path

    @staticmethod
    def _with_version(url: str) -> str:
        return url if urlsplit(url).path else f"{url}/v1"

    @staticmethod
    def _key_headers(api_key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {api_key}"} if api_key else {}

    @staticmethod
    def is_last(event: Event) -> bool:
        return event.data.strip() == b"[DONE]"

    def call(self, request: GenerationRequest) -> Call:
        is_whole = request.sampling.prompt_logprobs is not None
        translator = WholeTranslator if is_whole else StreamTranslator
        sent = request
        if not request.extra.keys() <= self.fields.relayed:
            sent = replace(request, extra=self.fields.relayed_of(request.extra))
        return Call(
            "/chat/completions" if request.is_chat else "/completions",
            request_body(sent, self.model),
            translator(request, self._options),
            is_whole=is_whole,
        )
