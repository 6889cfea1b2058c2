"""The endpoints. Each reads JSON, passes values on, and formats the answer."""

import logging
import time
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar

import orjson
from aiohttp import web
from pydantic import BaseModel

from engine.protocol import EngineError, GenerationRequest
from engine.protocol.prompt_size import text_size
from engine.protocol.relay import counted
from proxy import __version__
from proxy.deployment.deployment import Deployment, Route, ServedModel
from proxy.deployment.directory import no_model
from proxy.http.access.auth import KEY_RECORD, authenticate
from proxy.http.access.bodies import let_others_in, read_json
from proxy.http.access.callers import CALLER, KEY
from proxy.http.access.operator import is_operator
from proxy.http.dialect import speaks_messages
from proxy.http.moderate import moderate
from proxy.http.relay import admitted_or_refused, asked, relay
from proxy.http.respond import respond
from proxy.http.tokens import detokenized, ignored_fields, tokenized
from proxy.service.counts import check_counts
from proxy.service.prompts import check_prompts
from proxy.service.service import ROUTE, SERVICE
from proxy.service.stored_responses import Conversation, ResponseStore
from proxy.settings.bodies import max_body_size
from proxy.storage.errors import StateError
from proxy.storage.shared.protocol import Owner
from proxy.wire.errors import APIError, to_api_error
from proxy.wire.messages.answer import MessagesAnswer
from proxy.wire.messages.fields import CountFields, MessagesRequest
from proxy.wire.messages.models import model_object
from proxy.wire.openai.answer import new_id
from proxy.wire.openai.chat import ChatAnswer, ChatRequest
from proxy.wire.openai.completions import CompletionAnswer, CompletionRequest
from proxy.wire.openai.endpoint_fields import ignored_header
from proxy.wire.openai.moderations import ModerationRequest
from proxy.wire.openai.relayed import EmbeddingsRequest, RelayedRequest, RerankRequest, ScoreRequest
from proxy.wire.openai.response_answer import ResponsesAnswer
from proxy.wire.openai.responses import ResponsesRequest
from proxy.wire.openai.tokens import DetokenizeRequest, TokenizeRequest

logger = logging.getLogger("weir.proxy")

STARTED = int(time.time())

Fields = TypeVar("Fields", bound=BaseModel)


async def chat_completions(http: web.Request) -> web.StreamResponse:
    with _running(http) as deployment:
        fields = await _read(http, deployment, ChatRequest, needs_room="chat")
        route = _route(http, deployment, fields.model)
        request = fields.to_request(new_id("chatcmpl"), route.name, caller=http[CALLER])
        return await respond(http, route, request, ChatAnswer(fields, request))


async def completions(http: web.Request) -> web.StreamResponse:
    with _running(http) as deployment:
        fields = await _read(http, deployment, CompletionRequest, needs_room="completions")
        route = _route(http, deployment, fields.model)
        request = fields.to_request(new_id("cmpl"), route.name, caller=http[CALLER])
        return await respond(http, route, request, CompletionAnswer(fields, request))


async def responses(http: web.Request) -> web.StreamResponse:
    service = http.app[SERVICE]
    stored, owner = service.responses, _owner(http)
    with _running(http) as deployment:
        fields = await _read(http, deployment, ResponsesRequest, needs_room="responses")
        route = _route(http, deployment, fields.model)
        conversation = await stored.conversation(
            fields.previous_response_id,
            fields.input,
            owner,
            max_items=service.settings.max_messages,
            max_bytes=max_body_size(service.settings, route.model.engine.info.max_model_len),
        )
        request = fields.to_request(
            new_id("resp", "_"), route.name, [one.item for one in conversation], caller=http[CALLER]
        )
        keep = partial(_keep, stored, owner, conversation) if fields.store and stored.keeps else None
        return await respond(http, route, request, ResponsesAnswer(fields, request, keep))


async def messages(http: web.Request) -> web.StreamResponse:
    with _running(http) as deployment:
        fields = await _read(http, deployment, MessagesRequest, needs_room="messages")
        route = _route(http, deployment, fields.model)
        request = _messages_request(http, fields, route)
        return await respond(http, route, request, MessagesAnswer(fields, request))


def _messages_request(http: web.Request, fields: CountFields, route: Route) -> GenerationRequest:
    betas = http.headers.getall("anthropic-beta", ())
    return fields.to_request(new_id("msg", "_"), route.name, caller=http[CALLER], betas=betas)


async def count_tokens(http: web.Request) -> web.Response:
    """The tokens of a prompt, as the hooks let it go on."""
    service = http.app[SERVICE]
    with _running(http) as deployment:
        fields = await _read(http, deployment, CountFields)
        route = _route(http, deployment, fields.model)
        request = _messages_request(http, fields, route)
        engine = route.model.engine
        tokenizer = engine.tokenizer
        headers = ignored_header(fields.ignored(engine.fields))
        async with service.quotas.admitted(http, route.limited):
            async with service.opened(route, request) as guard:
                check_prompts(request, engine.info)
                admitted = await admitted_or_refused(guard, tokenizer)
                if tokenizer is None:
                    count = await asked(guard, counted(engine, admitted))
                    return _json({"input_tokens": count}, headers)
            encode = partial(tokenizer.encode_chat, admitted)
            size = text_size(admitted.messages)
            ids = await service.prompt_threads.run(encode, size=size, caller=http[CALLER])
        return _json({"input_tokens": len(ids)}, headers)


async def moderations(http: web.Request) -> web.Response:
    """No engine judges texts, so the model in a request names none that is served."""
    with _running(http) as deployment:
        fields = await _read(http, deployment, ModerationRequest)
        route = _route(http, deployment, None)
        return _json(await moderate(http, route, fields))


async def embeddings(http: web.Request) -> web.Response:
    return await _relayed(http, EmbeddingsRequest)


async def rerank(http: web.Request) -> web.Response:
    return await _relayed(http, RerankRequest)


async def score(http: web.Request) -> web.Response:
    return await _relayed(http, ScoreRequest)


async def _relayed(http: web.Request, kind: type[RelayedRequest]) -> web.Response:
    with _running(http) as deployment:
        fields = await _read(http, deployment, kind, needs_room=kind.endpoint)
        route = _route(http, deployment, fields.model)
        request = fields.to_request(new_id(kind.endpoint), route.name, caller=http[CALLER])
        return await relay(http, route, request, fields.body, fields.ignored(route.model.engine.fields))


async def _keep(store: ResponseStore, owner: Owner, conversation: Conversation, body: dict[str, Any]) -> bool:
    """Whether the response is stored. The client gets it in any case."""
    try:
        await store.put(owner, conversation, body)
    except StateError as error:
        logger.error("a response is not stored: %s", error)
        return False
    return True


async def response(http: web.Request) -> web.Response:
    response_id = http.match_info["id"]
    found = await http.app[SERVICE].responses.get(response_id, _owner(http))
    if found is None:
        raise _no_response(response_id)
    return web.Response(body=found, content_type="application/json")


async def delete_response(http: web.Request) -> web.Response:
    response_id = http.match_info["id"]
    if not await http.app[SERVICE].responses.remove(response_id, _owner(http)):
        raise _no_response(response_id)
    return _json({"id": response_id, "object": "response", "deleted": True})


def _no_response(response_id: str) -> APIError:
    return APIError(404, f"Response with id '{response_id}' not found.", "not_found_error", param="id")


def _owner(http: web.Request) -> Owner:
    return Owner(http[CALLER], http[KEY])


async def models(http: web.Request) -> web.Response:
    """The models that the key may use."""
    usable = http.app[SERVICE].deployment.models_of(http[KEY_RECORD])
    listed = [_model(http, name, model) for model in usable for name in model.listed]
    if speaks_messages(http):
        ends = {"first_id": listed[0]["id"], "last_id": listed[-1]["id"]} if listed else {}
        return _json({"data": listed, "has_more": False, "first_id": None, "last_id": None, **ends})
    return _json({"object": "list", "data": listed})


async def model(http: web.Request) -> web.Response:
    asked_for = http.match_info["id"]
    usable = http.app[SERVICE].deployment.models_of(http[KEY_RECORD])
    for model in usable:
        if asked_for in model.listed:
            return _json(_model(http, asked_for, model))
    raise no_model(asked_for, [name for model in usable for name in model.listed])


def _model(http: web.Request, name: str, model: ServedModel) -> dict[str, Any]:
    max_model_len = model.engine.info.max_model_len
    if speaks_messages(http):
        return model_object(name, STARTED, max_model_len)
    return {
        "id": name,
        "object": "model",
        "created": STARTED,
        "owned_by": "weir",
        "max_model_len": max_model_len,
    }


async def tokenize(http: web.Request) -> web.Response:
    service = http.app[SERVICE]
    with _running(http) as deployment:
        fields = await _read(http, deployment, TokenizeRequest)
        route = _route(http, deployment, fields.model)
        request = fields.to_request(new_id("tokenize"), route.name, caller=http[CALLER])
        headers = ignored_header(ignored_fields(route.model.engine, request))
        async with service.quotas.admitted(http, route.limited):
            return _json(await tokenized(service, route, request, fields), headers)


async def detokenize(http: web.Request) -> web.Response:
    service = http.app[SERVICE]
    with _running(http) as deployment:
        fields = await _read(http, deployment, DetokenizeRequest)
        route = _route(http, deployment, fields.model)
        request = GenerationRequest(
            request_id=new_id("detokenize"),
            model=route.name,
            endpoint="completions",
            prompts=(tuple(fields.tokens),),
            caller=http[CALLER],
        )
        async with service.quotas.admitted(http, route.limited):
            return _json(await detokenized(service, route, request, fields))


async def health(http: web.Request) -> web.Response:
    """Status 200 as long as a new process would serve no better. An upstream that is down changes nothing."""
    http.app[SERVICE].deployment.check_alive()
    return _json({"status": "ok"})


async def ready(http: web.Request) -> web.Response:
    """Status 200 if the server accepts new requests: an engine is healthy, every hook passed its self-test
    and can run, and the server is not stopping. Names the models that cannot be served now, if others can.

    An operator also gets what is wrong with upstreams, by model and by the upstream's name: the names may be
    addresses that are nobody else's business."""
    service = http.app[SERVICE]
    problems = {"upstreams": found} if is_operator(http) and (found := service.deployment.problems()) else {}
    try:
        service.deployment.check_health()
    except EngineError as error:
        if not problems:
            raise
        told = to_api_error(error)
        return _json({**told.body(), **problems}, status=told.status)
    if service.draining:
        raise APIError(503, "The server is shutting down.", "server_error", retry_after=1)
    if not service.deployment.is_ready:
        raise APIError(503, "No hook worker is running.", "server_error", retry_after=1)
    unhealthy = {name: str(error) for name, error in service.deployment.unhealthy().items()}
    return _json({"status": "ready", **({"unhealthy": unhealthy} if unhealthy else {}), **problems})


async def version(_: web.Request) -> web.Response:
    return _json({"version": __version__})


async def metrics(http: web.Request) -> web.Response:
    headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
    return web.Response(body=await http.config_dict[SERVICE].render_metrics(), headers=headers)


def _running(http: web.Request) -> AbstractContextManager[Deployment]:
    """As `Service.running`. The key is found again: a reload may have changed what it may do since the
    request was let in, and the key's policy must be one of the same configuration."""
    service = http.app[SERVICE]
    running = service.running()
    authenticate(http, service.find_key, service.needs_keys)
    return running


def _route(http: web.Request, deployment: Deployment, asked_for: str | None) -> Route:
    """The request's route. Raises as `Deployment.route` does."""
    route = http[ROUTE] = deployment.route(http[KEY_RECORD], asked_for)
    return route


async def _read(
    http: web.Request, deployment: Deployment, fields: type[Fields], needs_room: str = ""
) -> Fields:
    """The body, as `fields`. `needs_room`: the endpoint, if the request needs room at an engine. Raises
    `APIError` 400, 413, 415 or 429, `QueueFullError`, `RequestError` and `ValidationError`."""
    if needs_room:
        http.app[SERVICE].check_room(deployment, needs_room, http[KEY_RECORD], http[CALLER])
    # A web page can send any other content type to another site without asking for leave.
    if http.content_type != "application/json":
        raise APIError(415, "The body must be JSON, with the header Content-Type: application/json.")
    encoding = http.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise APIError(415, f"The body must not be compressed: {encoding} is not read here.")
    service = http.app[SERVICE]
    lengths = [model.engine.info.max_model_len for model in deployment.models_of(http[KEY_RECORD])]
    value = await read_json(http, service.settings, lengths)
    check_counts(value, service.settings)
    await let_others_in(http)
    request = fields.model_validate(value)
    await let_others_in(http)
    return request


def _json(body: dict[str, Any], headers: dict[str, str] | None = None, *, status: int = 200) -> web.Response:
    return web.Response(
        body=orjson.dumps(body), status=status, content_type="application/json", headers=headers
    )
