"""Guards LiteLLM's proxy in its own process: a guardrail class for its configuration.

    guardrails:
      - guardrail_name: weir
        litellm_params:
          guardrail: weir.litellm.Guardrail
          mode: [pre_call, post_call]
          default_on: true
          hooks: [secrets, {path: pii, args: {action: redact}}]

It guards chats: prompts in `pre_call`, answers in `post_call`, streamed and whole. It reads and writes
LiteLLM's chunks as `weir serve` does those of a server. Requests of another kind are refused.
"""

from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import orjson

from engine.protocol import Delta, GenerationRequest, RequestError
from engine.protocol.fields.asked import check_fields, steers_end
from engine.protocol.fields.table import FIELDS
from engine.upstream.openai.engine import OpenAIEngine
from engine.upstream.openai.stream import StreamTranslator
from engine.upstream.openai.whole import WholeTranslator
from engine.upstream.sse import SSEDecoder
from hooks.api.extras import from_extra
from hooks.decisions.failure import HookError as _HookError
from hooks.loading.given import OneHook
from hooks.loading.loader import HookSpec
from proxy.wire.openai.answer import new_id
from proxy.wire.openai.chat import ChatAnswer, ChatRequest
from weir.answer import Answer
from weir.answer import RefusedError as _RefusedError
from weir.guards import Guards, json_fields

with from_extra("litellm", "LiteLLM", "weir.litellm"):
    from litellm.exceptions import GuardrailRaisedException
    from litellm.integrations.custom_guardrail import CustomGuardrail
    from litellm.types.guardrails import GuardrailEventHooks
    from litellm.types.utils import ModelResponse, ModelResponseStream

_CHATS = ("completion", "acompletion")
"""LiteLLM's names for calls that are chats."""
_OWN = frozenset({"guardrails", "hooks", "metadata", "model", "user"})
"""Fields of a chat that LiteLLM has for itself, or that no hook reads."""
_MOST_KEPT = 10_000
"""Prompts whose answers are awaited. Calls that end without a word to their guardrails are forgotten then."""
_ENGINE = OpenAIEngine("http://127.0.0.1")
"""Says what hooks can follow of a chat. It asks nobody."""


class HookError(_HookError, GuardrailRaisedException):
    """A `weir.HookError`, which LiteLLM's client gets as an HTTP error 500."""


class RefusedError(_RefusedError, GuardrailRaisedException):
    """A `weir.RefusedError`, which LiteLLM's client gets as an HTTP error 400."""


class Guardrail(CustomGuardrail):
    """Guards chats by hooks. LiteLLM makes it, from its configuration.

    `hooks`: each is a name, an object with `path` and `args` as in the configuration of `weir serve`, or a
    hook of your own. `params`: LiteLLM's. Raises `HookLoadError` and `ValueError` as `Guards` does.
    """

    def __init__(self, hooks: Iterable[str | Mapping[str, Any] | OneHook] = (), **params: Any) -> None:
        super().__init__(**params)
        self.guards = Guards([HookSpec(**one) if isinstance(one, Mapping) else one for one in hooks])
        self._answers: OrderedDict[str, Answer] = OrderedDict()
        """Guards of answers that are awaited, by LiteLLM's id of the call."""

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        """Show the hooks the prompt. Returns the request as they let it go on. Raises `RefusedError`,
        `HookError`, and `RequestError` for what hooks could not follow."""
        if call_type not in _CHATS:
            raise RequestError(f"No hook reads a call of the type {call_type}: weir.litellm guards chats.")
        _, request = _read(data, user_api_key_dict)
        rest = json_fields({name: value for name, value in data.items() if not _is_litellms(name)})
        try:
            answer = await self.guards.aadmit(replace(request, extra={**request.extra, "rest": rest}))
        except (_HookError, _RefusedError) as error:
            raise self._own(error) from error.__cause__
        if answer.request.messages != request.messages:
            data["messages"] = answer.messages
        if answer.request.tools != request.tools:
            data["tools"] = answer.tools
        data.update(answer.request.extra["rest"])
        call_id = data.get("litellm_call_id")
        if call_id and self.should_run_guardrail(data, GuardrailEventHooks.post_call):
            await self._keep(str(call_id), answer)
        return data

    async def async_post_call_success_hook(
        self, data: dict[str, Any], user_api_key_dict: Any, response: Any
    ) -> Any:
        """Guard a whole answer."""
        fields, request = _read(data, user_api_key_dict)
        answer = self._answer_of(data, request)
        try:
            if not isinstance(response, ModelResponse):
                raise RequestError(f"No hook reads a {type(response).__name__}: weir.litellm guards chats.")
            translator, writer = WholeTranslator(request), ChatAnswer(fields, request)
            given = response.model_dump()
            deltas = [*translator.feed(given), *translator.finish(complete=True)]
            async with answer.deltas(_later(deltas)) as released:
                async for delta in released:
                    writer.fold(delta)
        except _HookError as error:
            raise self._own(error) from error.__cause__
        finally:
            await answer.aclose()
        # All is written anew but the usage: LiteLLM has fields beside the choices, as citations, that no hook
        # reads.
        written = ModelResponse(**orjson.loads(writer.whole()))
        written._hidden_params = response._hidden_params
        if usage := getattr(response, "usage", None):
            written.usage = usage
        return written

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: AsyncIterable[Any], request_data: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        """Guard a streamed answer."""
        fields, request = _read({**request_data, "stream": True}, user_api_key_dict)
        answer, writer = self._answer_of(request_data, request), ChatAnswer(fields, request)
        try:
            async with answer.deltas(_deltas(StreamTranslator(request), response)) as released:
                async for delta in released:
                    for chunk in _chunks(writer.chunk(delta)):
                        yield chunk
            for chunk in _chunks(writer.end()):
                yield chunk
        except _HookError as error:
            raise self._own(error) from error.__cause__
        finally:
            await _close(response)

    async def async_post_call_failure_hook(
        self, request_data: dict[str, Any], *args: Any, **named: Any
    ) -> None:
        """There is no answer to guard."""
        if (answer := self._answers.pop(str(request_data.get("litellm_call_id")), None)) is not None:
            await answer.aclose()

    async def _keep(self, call_id: str, answer: Answer) -> None:
        self._answers[call_id] = answer
        if len(self._answers) > _MOST_KEPT:
            _, oldest = self._answers.popitem(last=False)
            await oldest.aclose()

    def _answer_of(self, data: Mapping[str, Any], request: GenerationRequest) -> Answer:
        """The guard that has seen the prompt, or one that has not."""
        answer = self._answers.pop(str(data.get("litellm_call_id")), None)
        return self.guards.open(request) if answer is None else answer

    def _own(self, error: _HookError | _RefusedError) -> Exception:
        """The error as LiteLLM reads it."""
        is_refusal = isinstance(error, _RefusedError)
        kind = RefusedError if is_refusal else HookError
        own = kind.__new__(kind, *error.args)
        read = {"guardrail_name": self.guardrail_name, "message": str(error), "blocked_content": is_refusal}
        vars(own).update({**vars(error), **read, "status_code": 400 if is_refusal else 500})
        return own


def _read(data: Mapping[str, Any], asker: Any) -> tuple[ChatRequest, GenerationRequest]:
    """The chat of LiteLLM's request. Raises `RequestError` and `ValidationError`."""
    given = {name: value for name, value in data.items() if name in _NAMES}
    fields = ChatRequest.model_validate(given)
    caller = str(getattr(asker, "api_key", None) or "")
    request = fields.to_request(new_id("chatcmpl"), str(data.get("model") or ""), caller=caller)
    check_fields(request, _ENGINE.fields)
    if request.echo:
        raise RequestError("echo is not supported here.", param="echo")
    return fields, replace(request, steers_end=steers_end(request, _ENGINE.fields, _ENGINE.info))


def _is_litellms(name: str) -> bool:
    """Whether the field is LiteLLM's own, or is read by itself."""
    return name in _KEPT or name.startswith("litellm")


_KEPT = frozenset(
    {"api_base", "api_key", "guardrails", "messages", "metadata", "model", "proxy_server_request"}
    | {"secret_fields", "tools"}
)
_NAMES = (FIELDS.keys() | ChatRequest.model_fields.keys()) - _OWN


async def _later(deltas: Iterable[Delta]) -> AsyncGenerator[Delta, None]:
    for delta in deltas:
        yield delta


async def _deltas(translator: StreamTranslator, chunks: AsyncIterable[Any]) -> AsyncGenerator[Delta, None]:
    async for chunk in chunks:
        if not isinstance(chunk, ModelResponseStream):
            raise RequestError(f"No hook reads a {type(chunk).__name__}: weir.litellm guards chats.")
        for delta in translator.feed(chunk.model_dump()):
            yield delta
    for delta in translator.finish(complete=True):
        yield delta


def _chunks(events: bytes) -> Iterable[ModelResponseStream]:
    return [ModelResponseStream(**orjson.loads(event.data)) for event in SSEDecoder().feed(events)]


async def _close(source: Any) -> None:
    """Close the stream of LiteLLM's, if it can be: its model stops working."""
    if hasattr(source, "aclose"):
        async with aclosing(source):
            pass
