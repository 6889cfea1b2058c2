"""Guards Anthropic's SDK: an HTTP client for it.

    guards = weir.Guards(["pii", "secrets"])
    client = anthropic.Anthropic(http_client=weir.anthropic.http_client(guards))

Messages are guarded, streamed and whole: text, thinking and tool calls. Requests with other prompts or
answers are refused with `anthropic.NotFoundError`: their text would pass unread.
"""

from engine.protocol import GenerationRequest
from engine.upstream.messages.engine import MessagesEngine
from hooks.api.extras import from_extra
from hooks.decisions.failure import HookError as _HookError
from proxy.wire.messages.answer import MessagesAnswer
from proxy.wire.messages.errors import error_body
from proxy.wire.messages.fields import MessagesRequest
from proxy.wire.openai.answer import new_id
from weir.answer import RefusedError as _RefusedError
from weir.guards import Guards

with from_extra("anthropic", "Anthropic's SDK", "weir.anthropic"):
    import anthropic
    import httpx2

    from weir.transport import API, AsyncGuardedTransport, Endpoint, GuardedTransport


class HookError(_HookError, anthropic.AnthropicError):
    """A `weir.HookError`. The SDK does not ask again after it."""


class RefusedError(_RefusedError, anthropic.AnthropicError):
    """A `weir.RefusedError`. The server was not asked."""


def http_client(
    guards: Guards, *, transport: httpx2.BaseTransport | None = None, caller: str = ""
) -> httpx2.Client:
    """A client for `anthropic.Anthropic(http_client=...)`, with the SDK's own limits and timeouts.

    `transport`: sends what hooks let through, for proxies and certificates; None: httpx2's. `caller`: see
    `Guards.prompt`. The SDK raises `HookError`, `RefusedError`, and its own errors.
    """
    return anthropic.DefaultHttpxClient(
        transport=GuardedTransport(_api(), guards, transport=transport, caller=caller)
    )


def async_http_client(
    guards: Guards, *, transport: httpx2.AsyncBaseTransport | None = None, caller: str = ""
) -> httpx2.AsyncClient:
    """As `http_client`, for `anthropic.AsyncAnthropic`."""
    return anthropic.DefaultAsyncHttpxClient(
        transport=AsyncGuardedTransport(_api(), guards, transport=transport, caller=caller)
    )


def _api() -> API:
    """An API for each client: its engine remembers what signs the reasoning of earlier answers."""
    return API(
        MessagesEngine("https://api.anthropic.com"),
        {"/messages": Endpoint(MessagesRequest, _message, MessagesAnswer)},
        lambda error, request_id, status: error_body(error["error"], request_id, status),
        HookError,
        RefusedError,
    )


def _message(fields: MessagesRequest, headers: httpx2.Headers, caller: str) -> GenerationRequest:
    betas = headers.get_list("anthropic-beta")
    return fields.to_request(new_id("msg", "_"), fields.model or "", caller=caller, betas=betas)
