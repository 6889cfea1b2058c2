"""The paths of the protocols, by the names of the setting `guard_api`."""

from collections.abc import Callable, Mapping
from inspect import getdoc
from typing import Any, Protocol

import orjson
from aiohttp import web
from pydantic import BaseModel

from engine.protocol import GenerationRequest
from proxy.deployment.deployment import Route
from proxy.http.admission import admitted
from proxy.http.dialect import DIALECTS, Dialect
from proxy.http.door import Arrival
from proxy.http.guard_api.judging import judge
from proxy.http.guard_api.open_texts import OpenTexts, open_texts_of
from proxy.http.openapi import Operation
from proxy.network.errors import Handler
from proxy.service.service import SERVICE
from proxy.wire.errors import APIError
from proxy.wire.guard_api import agentgateway, bedrock, coding_agents, fms, litellm, nemo
from proxy.wire.guard_api.check import Check, Question
from proxy.wire.openai.answer import new_id


class API(Protocol):
    """One protocol: a module of `proxy.wire.guard_api`."""

    PATHS: Mapping[str, type[Any]]
    """Its questions, by their paths. The first sentence of a question's docstring is its summary."""
    ERROR: tuple[str, type[BaseModel]]
    """As `Operation` has it."""
    key: Callable[[Mapping[str, str]], str | None]
    error: Callable[[APIError], tuple[int, Any, Mapping[str, str]]]
    """As `Dialect` has them."""


APIS: Mapping[str, Any] = {
    "litellm": litellm,
    "bedrock": bedrock,
    "agentgateway": agentgateway,
    "fms": fms,
    "nemo": nemo,
    "hooks": coding_agents,
}


def add_guard_api(app: web.Application) -> list[Operation]:
    """Add the paths of the protocols that the settings name. Returns their description."""
    texts, added = open_texts_of(app), list[Operation]()
    for name in sorted(app[SERVICE].settings.guard_api_names & APIS.keys()):
        api: API = APIS[name]
        for path, question in api.PATHS.items():
            resource = app.router.add_resource(path)
            resource.add_route("POST", _handler(question, texts))
            app[DIALECTS][resource.canonical] = Dialect(api.key, api.error)
            summary, *_ = (getdoc(question) or "").partition(".")
            added.append(Operation("POST", path, summary, question, api.ERROR))
    return added


def _handler(kind: type[Question], texts: OpenTexts) -> Handler:
    async def answer(http: web.Request) -> web.Response:
        checks: list[Check] = []

        def make(arrival: Arrival, fields: Question, route: Route) -> GenerationRequest:
            checks.append(check := fields.check(http.match_info, http.headers))
            return check.request(new_id("guard"), arrival.owner.caller)

        async with admitted(http, kind, make, endpoint="guard", names_model=False) as exchange:
            exchange.spend_estimate()
            (check,) = checks
            judged = await judge(exchange, check, texts)
            body = orjson.dumps(exchange.fields.answer(check, judged))
            exchange.metrics.end("finished" if judged.blocked is None else "refused")
            return web.Response(body=body, content_type="application/json")

    return answer
