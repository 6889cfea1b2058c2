"""`/tokenize` and `/detokenize` in front of an upstream: by its tokenizer, or by one that the server has."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from aiohttp import web

from engine.protocol import GenerationRequest
from engine.protocol.demo import MODEL_DIR
from engine.upstream.openai.engine import OpenAIEngine
from engine.upstream.pool.engine import PoolEngine
from engine.upstream.pool.replica import Replica
from hooks import emit, refuse, with_prompt_texts
from proxy.deployment.engines import make_engine
from proxy.settings.model import ModelSettings
from tests.helpers import Script
from tests.proxy.conftest import Serve

USER = {"role": "user", "content": "a secret"}
TOOL = {"type": "function", "function": {"name": "f"}}
TOKENS = {"count": 2, "max_model_len": 77, "tokens": [3, 4], "token_strs": None}


class Upstream:
    """Answers every path with the same, and remembers what it was sent."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.status = 200
        self.answer: Any = TOKENS
        self.url = ""

    async def post(self, request: web.Request) -> web.Response:
        self.asked.append((request.path, orjson.loads(await request.read())))
        return web.json_response(self.answer, status=self.status)


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    made = Upstream()
    app = web.Application()
    app.router.add_post("/{path:.*}", made.post)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


class Reads:
    """Changes one word of prompts, and refuses another."""

    def __call__(self, chunk: Any) -> Any:
        return emit(chunk.pending)

    def on_request(self, request: GenerationRequest) -> Any:
        if "forbidden" in str(request.prompts):
            return refuse("harm")
        return with_prompt_texts(request, lambda prompt: prompt.text.replace("secret", "[x]"))


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        ({"prompt": "a secret"}, {"prompt": "a [x]"}),
        ({"prompt": "a", "add_special_tokens": False}, {"prompt": "a", "add_special_tokens": False}),
        (
            {"messages": [USER], "tools": [TOOL], "continue_final_message": True, "return_token_strs": False},
            {"messages": [USER | {"content": "a [x]"}], "tools": [TOOL], "continue_final_message": True},
        ),
    ],
)
async def test_an_upstream_is_asked_behind_the_hooks_on_prompts(
    serve: Serve, upstream: Upstream, body: dict[str, Any], sent: dict[str, Any]
) -> None:  # contract 8.1
    for engine in (
        OpenAIEngine(upstream.url, model="theirs"),
        PoolEngine([Replica("a", OpenAIEngine(upstream.url, model="theirs"), serves_all=True)]),
    ):
        client = await serve(engine, Reads())
        status, answer, _ = await client.post("/tokenize", {"model": "m", **body})
        assert (status, answer) == (200, {"count": 2, "max_model_len": 77, "tokens": [3, 4]})
        assert upstream.asked[-1] == ("/tokenize", {"model": "theirs", **sent})


async def test_a_refused_prompt_does_not_reach_the_upstream(serve: Serve, upstream: Upstream) -> None:
    client = await serve(OpenAIEngine(upstream.url), Reads())
    status, body, _ = await client.post("/tokenize", {"prompt": "forbidden"})
    assert (status, body["error"]["code"], upstream.asked) == (400, "content_filter", [])


async def test_an_upstreams_texts_are_given_only_where_no_hook_must_see_them(
    serve: Serve, upstream: Upstream
) -> None:  # contract 5.3
    asked = {"prompt": "a", "return_token_strs": True}
    upstream.answer = TOKENS | {"token_strs": ["x", "y"], "more": "text"}
    plain = await serve(OpenAIEngine(upstream.url))
    status, answer, _ = await plain.post("/tokenize", asked)
    assert (status, answer["token_strs"]) == (200, ["x", "y"])
    upstream.answer = {"prompt": "text"}
    status, answer, _ = await plain.post("/detokenize", {"tokens": [3, 4]})
    assert (status, answer) == (200, {"prompt": "text"})
    assert upstream.asked[-1][0] == "/detokenize"
    guarded = await serve(OpenAIEngine(upstream.url), Script(lambda c: emit(c.pending)))
    num_asked = len(upstream.asked)
    status, body, _ = await guarded.post("/tokenize", asked)
    assert (status, body["error"]["param"]) == (400, "return_token_strs")
    status, body, _ = await guarded.post("/detokenize", {"tokens": [3, 4]})
    assert (status, body["error"]["type"]) == (501, "server_error")
    assert len(upstream.asked) == num_asked


@pytest.mark.parametrize(
    ("status", "answer", "told"),
    [
        (200, {"tokens": ["a secret"]}, 502),
        (200, {"tokens": None}, 502),
        (200, {"tokens": [2**70]}, 502),
        (200, {"prompt": "a"}, 502),
        (404, {"detail": "Not Found"}, 501),
        (404, {"error": {"message": "The model `m` does not exist.", "code": 404}}, 404),
        (400, {"error": {"message": "a secret", "code": 400}}, 400),
    ],
)
async def test_an_upstreams_words_about_it_are_not_repeated(
    serve: Serve, upstream: Upstream, status: int, answer: Any, told: int
) -> None:
    upstream.status, upstream.answer = status, answer
    client = await serve(OpenAIEngine(upstream.url), Script(lambda c: emit(c.pending)), names=[])
    status, body, _ = await client.post("/tokenize", {"model": "m", "prompt": "a"})
    assert (status, "secret" in str(body)) == (told, False)


async def test_the_tokens_of_a_message_are_counted_by_the_upstream(serve: Serve, upstream: Upstream) -> None:
    client = await serve(OpenAIEngine(upstream.url, model="theirs"), Reads())
    asked = {
        "model": "m",
        "messages": [USER, {"role": "assistant", "content": "I"}],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
    }
    status, answer, headers = await client.post("/v1/messages/count_tokens", asked)
    assert (status, answer, "X-Weir-Estimated" in headers) == (200, {"input_tokens": 2}, False)
    ((path, body),) = upstream.asked
    assert path == "/tokenize"
    assert "secret" not in str(body)
    assert (body["model"], body["tools"][0]["function"]["name"]) == ("theirs", "f")
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
    upstream.answer = {"count": "many"}
    assert (await client.post("/v1/messages/count_tokens", asked))[0] == 502
    upstream.status = 404
    status, answer, headers = await client.post("/v1/messages/count_tokens", asked)
    assert (status, headers["X-Weir-Estimated"]) == (200, "input_tokens")
    assert answer["input_tokens"] > 0


def test_a_tokenizer_that_cannot_be_loaded_keeps_the_server_from_starting() -> None:
    settings = ModelSettings(engine="openai", upstream=["http://127.0.0.1:1"], tokenizer="/nowhere")
    with pytest.raises(ValueError, match="tokenizer: there is no model folder and no GGUF file /nowhere"):
        make_engine(settings)


async def test_a_tokenizer_of_the_servers_own_asks_no_upstream(
    serve: Serve, upstream: Upstream
) -> None:  # contract 8.9
    settings = ModelSettings(engine="openai", upstream=[upstream.url], tokenizer=str(MODEL_DIR))
    engine = make_engine(settings)
    client = await serve(engine, Reads())
    _, answer, _ = await client.post("/tokenize", {"prompt": "a secret", "return_token_strs": True})
    assert len(answer["tokens"]) == len(answer["token_strs"])
    _, text, _ = await client.post("/detokenize", {"tokens": answer["tokens"]})
    assert text == {"prompt": "a secret"}
    _, chat, _ = await client.post("/tokenize", {"messages": [USER]})
    counting = {"model": "m", "messages": [USER | {"content": "a [x]"}]}
    _, counted, _ = await client.post("/v1/messages/count_tokens", counting)
    assert counted["input_tokens"] >= chat["count"] > answer["count"]
    assert upstream.asked == []
    upstream.answer, upstream.status = {"error": {"message": "enough"}}, 400
    await client.post("/v1/completions", {"model": "m", "prompt": answer["tokens"]})
    ((path, body),) = upstream.asked
    assert path == "/v1/completions"
    _, text, _ = await client.post("/detokenize", {"tokens": body["prompt"]})
    assert text == {"prompt": "a [x]"}
