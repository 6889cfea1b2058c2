"""The way of a request that is no generation, to an upstream and back."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import orjson
from aiohttp import web

from engine.protocol import Engine, GenerationRequest, QueueFullError, RequestError, Tokenizer
from engine.protocol.relay import relayed
from hooks.pipeline.driver import admit, in_own_words
from hooks.pipeline.open_guard import OpenGuard, PassThrough
from proxy.deployment.deployment import Route
from proxy.http.request_log import REQUEST_LOG
from proxy.service.prompts import check_prompts
from proxy.service.quotas import estimated_tokens
from proxy.service.service import SERVICE
from proxy.wire.openai.endpoint_fields import ignored_header
from proxy.wire.openai.relayed import without_unseen

T = TypeVar("T")


async def relay(
    http: web.Request,
    route: Route,
    request: GenerationRequest,
    body: Callable[[GenerationRequest], dict[str, Any]],
    ignored: list[str],
) -> web.Response:
    """Admit, relay, answer. `body`: the upstream's, for the request as hooks let it go on. `ignored`: the
    fields that the upstream does not get."""
    service = http.app[SERVICE]
    with service.metrics.request(request.endpoint, route.model.name, route.key.tenant) as metrics:
        http[REQUEST_LOG].begin(request.request_id, metrics, request, ignored)
        async with (
            service.quotas.admitted(http, route.limited) as spending,
            service.begin(route, request),
            service.opened(route, request) as guard,
        ):
            spending.spend(estimated_tokens(request))
            admitted, answer = await ask_upstream(route.model.engine, guard, f"/{request.endpoint}", body)
            if not isinstance(guard, PassThrough):
                answer = orjson.dumps(without_unseen(orjson.loads(answer), admitted))
        metrics.end("finished")
        headers = ignored_header(ignored)
        return web.Response(body=answer, content_type="application/json", headers=headers)


async def ask_upstream(
    engine: Engine, guard: OpenGuard, path: str, body: Callable[[GenerationRequest], dict[str, Any]]
) -> tuple[GenerationRequest, bytes]:
    """The request as hooks let it go on, with the fields that the upstream gets, and the upstream's answer,
    which no hook has seen."""
    check_prompts(guard.request, engine.info)
    admitted = await admitted_or_refused(guard, engine.tokenizer)
    admitted = replace(admitted, extra=engine.fields.relayed_of(admitted.extra))
    return admitted, await asked(guard, relayed(engine, admitted, path, body(admitted)))


async def asked(guard: OpenGuard, answer: Awaitable[T]) -> T:
    """The upstream's answer. Raises its errors, in Weir's words where hooks must see all text first."""
    try:
        return await answer
    except (RequestError, QueueFullError) as error:
        raise in_own_words(error, guard) from None


async def admitted_or_refused(guard: OpenGuard, tokenizer: Tokenizer | None) -> GenerationRequest:
    """The request as hooks let it go on. Raises `RequestError` if a hook answered in the engine's place:
    there is no answer of words here."""
    admitted = await admit(guard, tokenizer)
    if isinstance(admitted, GenerationRequest):
        return admitted
    raise RequestError("The prompt was refused.", param=guard.request.prompt_field, code="content_filter")
