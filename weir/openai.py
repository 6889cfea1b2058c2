"""Guards OpenAI's SDK: an HTTP client for it.

    guards = weir.Guards(["pii", "secrets"])
    client = openai.OpenAI(http_client=weir.openai.http_client(guards))

Chats, completions and responses are guarded, streamed and whole, on every channel: text, reasoning, tool
calls and logprobs. Responses are asked as chats, as the proxy asks them. Requests with other prompts or
answers are refused with `openai.NotFoundError`: their text would pass unread.
"""

from engine.protocol import GenerationRequest, RequestError
from engine.upstream.openai.engine import OpenAIEngine
from hooks.api.extras import from_extra
from hooks.decisions.failure import HookError as _HookError
from proxy.wire.openai.answer import new_id
from proxy.wire.openai.chat import ChatAnswer, ChatRequest
from proxy.wire.openai.completions import CompletionAnswer, CompletionRequest
from proxy.wire.openai.response_answer import ResponsesAnswer
from proxy.wire.openai.responses import ResponsesRequest
from weir.answer import RefusedError as _RefusedError
from weir.guards import Guards

with from_extra("openai", "OpenAI's SDK", "weir.openai"):
    import httpx2
    import openai

    from weir.transport import API, AsyncGuardedTransport, Endpoint, GuardedTransport


class HookError(_HookError, openai.OpenAIError):
    """A `weir.HookError`. The SDK does not ask again after it."""


class RefusedError(_RefusedError, openai.OpenAIError):
    """A `weir.RefusedError`. The server was not asked."""


def http_client(
    guards: Guards, *, transport: httpx2.BaseTransport | None = None, caller: str = ""
) -> httpx2.Client:
    """A client for `openai.OpenAI(http_client=...)`, with the SDK's own limits and timeouts.

    `transport`: sends what hooks let through, for proxies and certificates; None: httpx2's. `caller`: see
    `Guards.prompt`. The SDK raises `HookError`, `RefusedError`, and its own errors.
    """
    return openai.DefaultHttpx2Client(
        transport=GuardedTransport(api(), guards, transport=transport, caller=caller)
    )


def async_http_client(
    guards: Guards, *, transport: httpx2.AsyncBaseTransport | None = None, caller: str = ""
) -> httpx2.AsyncClient:
    """As `http_client`, for `openai.AsyncOpenAI`."""
    return openai.DefaultAsyncHttpx2Client(
        transport=AsyncGuardedTransport(api(), guards, transport=transport, caller=caller)
    )


def api() -> API:
    return API(
        OpenAIEngine("https://api.openai.com/v1"),
        {
            "/chat/completions": Endpoint(ChatRequest, _chat, ChatAnswer),
            "/completions": Endpoint(CompletionRequest, _completion, CompletionAnswer),
            "/responses": Endpoint(ResponsesRequest, _response, ResponsesAnswer),
        },
        lambda error, request_id, status: error,
        HookError,
        RefusedError,
    )


def _chat(fields: ChatRequest, headers: httpx2.Headers, caller: str) -> GenerationRequest:
    return fields.to_request(new_id("chatcmpl"), fields.model or "", caller=caller)


def _completion(fields: CompletionRequest, headers: httpx2.Headers, caller: str) -> GenerationRequest:
    return fields.to_request(new_id("cmpl"), fields.model or "", caller=caller)


def _response(fields: ResponsesRequest, headers: httpx2.Headers, caller: str) -> GenerationRequest:
    if fields.previous_response_id or any(item.type == "item_reference" for item in fields.input):
        reason = "previous_response_id: no response is stored here. Send the conversation."
        raise RequestError(reason, param="previous_response_id")
    return fields.to_request(new_id("resp", "_"), fields.model or "", fields.input, caller=caller)
