"""`/ready` names upstreams with a fault to the operator alone."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from proxy.deployment.engines import make_engine
from tests.helpers import pooled
from tests.proxy.conftest import CHAT, Serve, send


class Upstream:
    """Answers with one status, and lists one model."""

    def __init__(self, status: int = 200, model: str = "theirs") -> None:
        self.status = status
        self.model = model
        self.url = ""

    async def answer(self, http: web.Request) -> web.Response:
        if self.status != 200:
            return web.json_response({"error": {"message": "the upstream's own words"}}, status=self.status)
        return web.json_response({"data": [{"id": self.model}]})


@pytest.fixture
async def ready(serve: Serve) -> AsyncIterator[Any]:
    """Starts a server before these upstreams. Returns a function that asks whether it is ready."""
    async with AsyncExitStack() as stack:

        async def start(
            upstreams: dict[str, Upstream | str], *, api_key: Sequence[str] = (), **of_model: Any
        ) -> Any:
            urls = {}
            for name, upstream in upstreams.items():
                if isinstance(upstream, Upstream):
                    app = web.Application()
                    app.router.add_route("*", "/{path:.*}", upstream.answer)
                    running = await stack.enter_async_context(TestServer(app))
                    upstream.url = str(running.make_url("/v1"))
                urls[name] = upstream if isinstance(upstream, str) else upstream.url
            listed: Any = [{"name": name, "url": url} for name, url in urls.items()]
            engine = make_engine(pooled(upstream=listed, upstream_model="theirs", **of_model))
            client = await serve(engine, api_key=[*api_key])

            async def ask() -> tuple[int, Any]:
                async with client.http.get(client.url + "/ready") as response:
                    return response.status, orjson.loads(await response.read())

            return client, ask

        yield start


async def test_problems_are_told_by_the_upstreams_name(ready: Any, unused_tcp_port: int) -> None:
    upstreams = {
        "good": Upstream(),
        "locked": Upstream(401),
        "other": Upstream(model="another"),
        "gone": f"http://127.0.0.1:{unused_tcp_port}",
    }
    _, ask = await ready(upstreams)
    status, body = await ask()
    assert status == 200
    assert body == {
        "status": "ready",
        "upstreams": {
            "m": {
                "locked": "refuses this service's key",
                "other": "does not list the model that it is asked for",
                "gone": "cannot be reached",
            }
        },
    }


async def test_a_service_whose_only_upstream_refuses_the_key_is_not_ready(ready: Any) -> None:
    upstream = Upstream(401)
    client, ask = await ready({"only": upstream}, upstream_health_interval=0.01)
    status, body = await ask()
    assert status == 503
    assert body["upstreams"] == {"m": {"only": "refuses this service's key"}}
    assert "own words" not in str(body)
    assert (await client.get("/health"))[0] == 200
    upstream.status = 200
    while status != 200:
        status, body = await ask()
    assert body == {"status": "ready"}


async def test_a_key_that_is_refused_later_is_noticed(ready: Any) -> None:
    upstream = Upstream()
    client, ask = await ready({"only": upstream}, upstream_health_interval=0)
    assert await ask() == (200, {"status": "ready"})
    upstream.status = 401
    await send(client, "/v1/chat/completions", orjson.dumps(CHAT))
    status, body = await ask()
    assert (status, body["upstreams"]) == (503, {"m": {"only": "refuses this service's key"}})


async def test_strangers_are_told_no_upstreams_name(ready: Any) -> None:
    _, ask = await ready({"only": Upstream(401)}, api_key=["k"], upstream_health_interval=0)
    status, body = await ask()
    assert status == 503
    assert "only" not in str(body)
    assert body["error"]["message"] == "No upstream engine can serve now."


async def test_an_upstream_that_lists_no_models_is_a_reason_and_no_failure(ready: Any) -> None:
    """The key may be the reason."""
    for key, hint in (("k", "is its key right?"), (None, "it is sent no key: does it want one?")):
        _, ask = await ready({"only": Upstream(500)}, upstream_health_interval=0, upstream_api_key=key)
        problem = {"only": f"answers the question for its models with HTTP 500 ({hint})"}
        assert await ask() == (200, {"status": "ready", "upstreams": {"m": problem}})
