"""The endpoints. Each admits a request, and formats the answer."""

import logging
import time
from datetime import UTC, datetime
from functools import partial
from typing import Any

import orjson
from aiohttp import web

from engine.protocol import EngineError, GenerationRequest
from proxy import __version__
from proxy.deployment.deployment import Route, ServedModel
from proxy.deployment.directory import no_model
from proxy.http.access.bodies import max_body_size
from proxy.http.access.operator import is_operator
from proxy.http.admission import Exchange, Make, admitted
from proxy.http.dialect import speaks_messages
from proxy.http.door import ARRIVAL, Arrival
from proxy.http.moderate import moderated
from proxy.http.respond import respond
from proxy.http.tokens import detokenized, ignored_fields, tokenized
from proxy.network.errors import Handler, api_error
from proxy.service.service import SERVICE
from proxy.service.stored_responses import Conversation, ResponseStore, continued
from proxy.storage.query import StateError
from proxy.storage.shared.protocol import Owner
from proxy.wire.errors import APIError
from proxy.wire.messages.answer import MessagesAnswer
from proxy.wire.messages.fields import CountFields, MessagesRequest
from proxy.wire.openai.answer import new_id
from proxy.wire.openai.chat import ChatAnswer, ChatRequest
from proxy.wire.openai.completions import CompletionAnswer, CompletionRequest
from proxy.wire.openai.endpoint_fields import ignored_header
from proxy.wire.openai.moderations import ModerationRequest
from proxy.wire.openai.relayed import (
    EmbeddingsRequest,
    RelayedRequest,
    RerankRequest,
    ScoreRequest,
    without_unseen,
)
from proxy.wire.openai.response_answer import ResponsesAnswer
from proxy.wire.openai.responses import ResponseCreate, ResponsesRequest
from proxy.wire.openai.tokens import DetokenizeRequest, TokenizeRequest

logger = logging.getLogger("weir.proxy")

ESTIMATED = "X-Weir-Estimated"
"""The header that names a number of the answer that is an estimate."""
STARTED = int(time.time())


def _request(prefix: str) -> Make[Any]:
    """A function that makes the request of a body, with an id that begins with `prefix`."""

    def make(arrival: Arrival, fields: Any, route: Route) -> GenerationRequest:
        made: GenerationRequest = fields.to_request(new_id(prefix), route.name, caller=arrival.owner.caller)
        return made

    return make


_CHAT, _COMPLETION = _request("chatcmpl"), _request("cmpl")
_TOKENIZE, _DETOKENIZE = _request("tokenize"), _request("detokenize")


async def chat_completions(http: web.Request) -> web.StreamResponse:
    async with admitted(http, ChatRequest, _CHAT, endpoint="chat") as exchange:
        return await respond(exchange, ChatAnswer(exchange.fields, exchange.request))


async def completions(http: web.Request) -> web.StreamResponse:
    async with admitted(http, CompletionRequest, _COMPLETION, endpoint="completions") as exchange:
        return await respond(exchange, CompletionAnswer(exchange.fields, exchange.request))


async def responses(http: web.Request) -> web.StreamResponse:
    return await _responded(http, ResponsesRequest)


async def response_over_socket(http: web.Request) -> web.StreamResponse:
    """The answer to a message of a socket, which has its conversation."""
    return await _responded(http, ResponseCreate)


async def _responded(http: web.Request, kind: type[ResponsesRequest]) -> web.StreamResponse:
    conversation: list[Conversation] = []

    async def make(arrival: Arrival, fields: ResponsesRequest, route: Route) -> GenerationRequest:
        if arrival.socket is not None and isinstance(fields, ResponseCreate):
            arrival.socket.stream_id = fields.stream_id
        conversation.append(found := await _conversation(arrival, fields, route))
        items = [one.item for one in found]
        return fields.to_request(new_id("resp", "_"), route.name, items, caller=arrival.owner.caller)

    async with admitted(http, kind, make, endpoint="responses") as exchange:
        stored, fields, socket = exchange.service.responses, exchange.fields, exchange.arrival.socket
        keep = partial(_keep, stored, exchange.arrival.owner, conversation[0])
        answer = ResponsesAnswer(fields, exchange.request, keep if fields.store and stored.keeps else None)
        response = await respond(exchange, answer)
        if socket is not None and (body := answer.response())["status"] in ("completed", "incomplete"):
            socket.remember(body["id"], continued(conversation[0], body))
        return response


async def _conversation(arrival: Arrival, fields: ResponsesRequest, route: Route) -> Conversation:
    """The items that come before the answer. Raises `RequestError`, and `StateError`."""
    settings, previous_id = arrival.service.settings, fields.previous_response_id
    return await arrival.service.responses.conversation(
        previous_id,
        fields.input,
        arrival.owner,
        max_items=settings.max_messages,
        max_bytes=max_body_size(settings, route.model.info.max_model_len),
        recalled=None if arrival.socket is None else arrival.socket.recall(previous_id),
    )


async def messages(http: web.Request) -> web.StreamResponse:
    async with admitted(http, MessagesRequest, _messages_request, endpoint="messages") as exchange:
        return await respond(exchange, MessagesAnswer(exchange.fields, exchange.request))


async def count_tokens(http: web.Request) -> web.Response:
    """The tokens of a prompt, as the hooks let it go on."""
    async with admitted(http, CountFields, _messages_request) as exchange:
        headers = ignored_header(exchange.fields.ignored(exchange.support))
        num_tokens, is_estimated = await exchange.count_tokens()
        headers |= {ESTIMATED: "input_tokens"} if is_estimated else {}
        return _json({"input_tokens": num_tokens}, headers)


def _messages_request(arrival: Arrival, fields: CountFields, route: Route) -> GenerationRequest:
    betas = arrival.http.headers.getall("anthropic-beta", ())
    return fields.to_request(new_id("msg", "_"), route.name, caller=arrival.owner.caller, betas=betas)


async def moderations(http: web.Request) -> web.Response:
    """No engine judges texts, so the model in a request names none that is served."""
    if "moderations" not in http.app[SERVICE].settings.guard_api_names:
        raise APIError(501, "This server answers no moderations (--moderations).", "server_error")
    admission = admitted(http, ModerationRequest, _moderation, endpoint="moderations", names_model=False)
    async with admission as exchange:
        return _json(await moderated(exchange))


def _moderation(arrival: Arrival, fields: ModerationRequest, _: Route) -> GenerationRequest:
    texts = tuple(text for one in fields.inputs() for text in one)
    return fields.to_requests(new_id("modr"), texts, caller=arrival.owner.caller)[0]


def _relayed(kind: type[RelayedRequest]) -> Handler:
    """The endpoint for requests of this kind, which an upstream answers."""
    make = _request(kind.endpoint)

    async def relay(http: web.Request) -> web.Response:
        async with admitted(http, kind, make, endpoint=kind.endpoint) as exchange:
            ignored = exchange.arrival.ignored = exchange.fields.ignored(exchange.support)
            body, headers = await _upstreams_answer(exchange), ignored_header(ignored)
            return web.Response(body=body, content_type="application/json", headers=headers)

    return relay


embeddings = _relayed(EmbeddingsRequest)
rerank = _relayed(RerankRequest)
score = _relayed(ScoreRequest)


async def _upstreams_answer(exchange: Exchange[RelayedRequest]) -> bytes:
    exchange.spend_estimate()
    request, answer = await exchange.ask_upstream(f"/{exchange.request.endpoint}", exchange.fields.body)
    if exchange.has_hooks():
        answer = orjson.dumps(without_unseen(orjson.loads(answer), request))
    exchange.metrics.end("finished")
    return answer


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
    return http[ARRIVAL].owner


async def models(http: web.Request) -> web.Response:
    """The models that the key may use."""
    usable = http.app[SERVICE].deployment.models_of(http[ARRIVAL].key)
    listed = [_model(http, name, model) for model in usable for name in model.listed]
    if speaks_messages(http):
        ends = {"first_id": listed[0]["id"], "last_id": listed[-1]["id"]} if listed else {}
        return _json({"data": listed, "has_more": False, "first_id": None, "last_id": None, **ends})
    return _json({"object": "list", "data": listed})


async def model(http: web.Request) -> web.Response:
    asked_for = http.match_info["id"]
    usable = http.app[SERVICE].deployment.models_of(http[ARRIVAL].key)
    for model in usable:
        if asked_for in model.listed:
            return _json(_model(http, asked_for, model))
    raise no_model(asked_for, [name for model in usable for name in model.listed])


def _model(http: web.Request, name: str, model: ServedModel) -> dict[str, Any]:
    max_model_len = model.info.max_model_len
    if speaks_messages(http):
        return {
            "type": "model",
            "id": name,
            "display_name": name,
            "created_at": datetime.fromtimestamp(STARTED, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "lifecycle": "active",
            "max_input_tokens": max_model_len,
        }
    return {
        "id": name,
        "object": "model",
        "created": STARTED,
        "owned_by": "weir",
        "max_model_len": max_model_len,
    }


async def tokenize(http: web.Request) -> web.Response:
    async with admitted(http, TokenizeRequest, _TOKENIZE) as exchange:
        headers = ignored_header(ignored_fields(exchange))
        return _json(await tokenized(exchange), headers)


async def detokenize(http: web.Request) -> web.Response:
    async with admitted(http, DetokenizeRequest, _DETOKENIZE) as exchange:
        return _json(await detokenized(exchange))


async def health(http: web.Request) -> web.Response:
    """Status 200 as long as a new process would serve no better. An upstream that is down changes nothing."""
    http.app[SERVICE].deployment.check_alive()
    return _json({"status": "ok"})


async def ready(http: web.Request) -> web.Response:
    """Status 200 if the server accepts new requests: an engine is healthy, every hook passed its self-test
    and can run, and the server is not stopping. Names the models that cannot be served now, if any can.

    An operator also gets what is wrong with upstreams, by model and by the upstream's name: the names may be
    addresses that are nobody else's business."""
    service = http.app[SERVICE]
    problems = {"upstreams": found} if is_operator(http) and (found := service.deployment.problems()) else {}
    try:
        service.deployment.check_health()
    except EngineError as error:
        if not problems:
            raise
        failure = api_error(error)
        return _json({**failure.body(), **problems}, status=failure.status)
    if service.is_draining or service.stopping.is_set():
        raise APIError(503, "The server is shutting down.", "server_error", retry_after=1)
    service.receipts.check()
    if not service.deployment.is_ready:
        raise APIError(503, "No hook worker is running.", "server_error", retry_after=1)
    unhealthy = {name: str(error) for name, error in service.deployment.unhealthy().items()}
    return _json({"status": "ready", **({"unhealthy": unhealthy} if unhealthy else {}), **problems})


async def version(_: web.Request) -> web.Response:
    return _json({"version": __version__})


async def metrics(http: web.Request) -> web.Response:
    headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
    return web.Response(body=await http.config_dict[SERVICE].render_metrics(), headers=headers)


def _json(body: dict[str, Any], headers: dict[str, str] | None = None, *, status: int = 200) -> web.Response:
    return web.Response(
        body=orjson.dumps(body), status=status, content_type="application/json", headers=headers
    )
