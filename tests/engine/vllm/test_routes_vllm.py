"""The middleware before vLLM's own app, with every route that vLLM can have: none goes round the hooks."""

import json
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from weir.adapters.passage import GUARDED, OPEN

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]

CHATS = "/v1/chat/completions"
ASKED = {
    CHATS: {"messages": [{"role": "user", "content": "Hi"}]},
    "/v1/completions": {"prompt": "Hi"},
    "/v1/responses": {"input": "Hi"},
}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "OTHER")


@pytest.fixture(scope="module")
def app(vllm_environment: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The app that `vllm serve` makes for a model of all tasks, in its mode for developers."""
    with pytest.MonkeyPatch.context() as patch:
        (path := tmp_path_factory.mktemp("routes") / "weir.yaml").write_text('{"hooks": ["pii"]}')
        patch.setenv("WEIR_CONFIG", str(path))
        patch.setenv("VLLM_SERVER_DEV_MODE", "1")
        from vllm.entrypoints.launchers.app import build_app
        from vllm.entrypoints.launchers.cli_args import make_arg_parser
        from vllm.tasks import FrontendTask, GenerationTask, PoolingTask
        from vllm.utils.argparse_utils import FlexibleArgumentParser

        given = ["--model", "m", "--middleware", "weir.adapters.vllm.Guard", "--enable-scale-out"]
        given += ["--enable-tokenizer-info-endpoint", "--enable-request-id-headers"]
        tasks = [task for kind in (GenerationTask, PoolingTask, FrontendTask) for task in get_args(kind)]
        made = build_app(make_arg_parser(FlexibleArgumentParser()).parse_args(given), tuple(tasks))
        made.add_api_route("/v9/of_a_later_version", lambda: None, methods=["GET", "POST"])
        yield made


async def reached(app: Any, method: str, path: str, **scope: Any) -> list[tuple[str, str]]:
    """The routes that a request reaches. Each answers with a secret, which no client may get unless the
    route is open."""
    found: list[tuple[str, str]] = []
    sent: list[Any] = []

    async def tells(scope: Any, receive: Any, send: Any) -> None:
        found.append((scope.get("method", "WEBSOCKET"), scope["path"]))
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"a secret"})

    async def receive() -> Any:
        asked = json.dumps({"model": "m", **ASKED.get(path, {})}).encode()
        return {"type": "http.request", "body": asked, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    for route in app.routes:
        route.app = tells
    given = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b""}
    given |= {"headers": [(b"content-type", b"application/json")], "http_version": "1.1", "scheme": "http"}
    await app({**given, "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1), **scope}, receive, send)
    assert sent, "every request is answered"
    if not (method in ("GET", "HEAD") and path in OPEN):
        assert b"secret" not in b"".join(message.get("body", b"") for message in sent)
    return found


def paths_of(app: Any) -> list[str]:
    paths = {route.path.replace("{response_id}", "resp_1") for route in app.routes}
    assert not any("{" in path for path in paths), "give the parameter a value above"
    return sorted(paths)


async def test_the_app_has_the_routes_that_the_middleware_knows(app: Any) -> None:
    assert {*paths_of(app)} >= GUARDED | OPEN
    assert ASKED.keys() == GUARDED
    assert len(paths_of(app)) > 60


@pytest.mark.parametrize("method", METHODS)
async def test_a_route_is_guarded_or_open_or_closed(app: Any, method: str) -> None:
    for path in paths_of(app):
        found = await reached(app, method, path)
        if method == "POST" and path in GUARDED:
            assert found == [("POST", "/v1/completions" if path == "/v1/completions" else CHATS)]
        elif method == "GET" and path in OPEN:
            assert found == [(method, path)]
        elif method == "HEAD" and path in OPEN:
            assert {*found} <= {(method, path)}  # vLLM has it for some
        else:
            assert not found, path


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_another_spelling_of_a_path_reaches_nothing(app: Any, method: str) -> None:
    for path in paths_of(app):
        spellings = [
            path + "/",
            "/" + path,
            path.upper(),
            f"/api{path}",
            path + "/.",
            path + ";x",
            path + "%20",
        ]
        for spelling in spellings:
            if spelling not in OPEN | GUARDED | {"//"}:
                assert not await reached(app, method, spelling), spelling
                assert not await reached(app, method, spelling, root_path="/api"), spelling


async def test_no_websocket_is_opened(app: Any) -> None:
    for path in paths_of(app):
        assert not await reached(app, "WEBSOCKET", path, type="websocket", subprotocols=[])
