"""Embeddings, ranks and scores: relayed to an upstream, their texts read by hooks."""

import struct
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from openai import AsyncOpenAI

from benchmarks import leaks_relayed
from engine.protocol import GenerationRequest
from engine.upstream.openai.engine import OpenAIEngine
from engine.upstream.pool.engine import PoolEngine
from engine.upstream.pool.replica import Replica
from hooks import Chunk, Verdict, emit, prompt_texts, refuse, with_prompt_texts
from tests.helpers import ScriptedEngine, examples, make_deltas
from tests.proxy.conftest import Serve

EMBEDDING = {
    "object": "list",
    "model": "theirs",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.25, -1.0]}],
    "usage": {"prompt_tokens": 1, "total_tokens": 1},
}


class Upstream:
    """Answers every path with the same, and remembers what it was sent."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.status = 200
        self.answer: bytes = orjson.dumps(EMBEDDING)
        self.url = ""

    async def post(self, request: web.Request) -> web.Response:
        self.asked.append((request.path, orjson.loads(await request.read())))
        return web.Response(status=self.status, body=self.answer, content_type="application/json")


@pytest.fixture
async def upstreams() -> AsyncIterator[list[Upstream]]:
    made, runners = [Upstream(), Upstream()], []
    for upstream in made:
        app = web.Application()
        app.router.add_post("/v1/{path:.*}", upstream.post)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        upstream.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        runners.append(runner)
    yield made
    for runner in runners:
        await runner.cleanup()


class Reads:
    """Reads prompts, changes one word, and refuses another."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending)

    def on_request(self, request: GenerationRequest) -> Any:
        texts = [text.text for text in prompt_texts(request)]
        self.seen.append(texts)
        if any("forbidden" in text for text in texts):
            return refuse("harm", text="No." if "politely" in texts[0] else None)
        return with_prompt_texts(request, lambda prompt: prompt.text.replace("secret", "[x]"))


@pytest.mark.parametrize(
    ("path", "body", "sent"),
    [
        ("/v1/embeddings", {"input": "a secret"}, {"input": "a [x]"}),
        (
            "/v1/embeddings",
            {"input": ["a", "secret"], "dimensions": 2},
            {"input": ["a", "[x]"], "dimensions": 2},
        ),
        (
            "/v1/rerank",
            {"query": "secret?", "documents": ["a", {"text": "secret"}], "top_n": 1},
            {"query": "[x]?", "documents": ["a", {"text": "[x]"}], "top_n": 1},
        ),
        ("/rerank", {"query": "q", "documents": ["a"]}, {"query": "q", "documents": ["a"]}),
        ("/v1/score", {"text_1": "q", "text_2": ["a", "secret"]}, {"text_1": "q", "text_2": ["a", "[x]"]}),
        ("/score", {"queries": "q", "documents": ["secret"]}, {"queries": "q", "documents": ["[x]"]}),
    ],
)
async def test_the_texts_are_prompts_that_hooks_read_and_change(
    serve: Serve, upstreams: list[Upstream], path: str, body: dict[str, Any], sent: dict[str, Any]
) -> None:  # contract 8.1
    upstream, reads = upstreams[0], Reads()
    client = await serve(OpenAIEngine(upstream.url, model="theirs"), reads)
    status, answer, headers = await client.post(path, {"model": "m", **body})
    assert (status, answer) == (200, {**EMBEDDING, "model": "m"})
    assert headers["X-Request-Id"]
    endpoint = "/v1/" + path.rpartition("/")[2]
    assert upstream.asked == [(endpoint, {"model": "theirs", **sent})]
    assert any("secret" in text or text == "a" for text in reads.seen[-1])


async def test_a_text_object_has_no_field_that_hooks_would_not_read(
    serve: Serve, upstreams: list[Upstream]
) -> None:  # contract 8.1
    client = await serve(OpenAIEngine(upstreams[0].url), Reads())
    documents = [{"text": "a", "title": "a secret"}]
    status, error, _ = await client.post("/v1/rerank", {"query": "q", "documents": documents})
    assert status == 400
    assert error["error"]["param"] == "documents.0"
    assert not upstreams[0].asked


async def test_text_of_an_upstream_that_no_hook_saw_stays_behind(
    serve: Serve, upstreams: list[Upstream]
) -> None:  # contract 5.3
    client = await serve(OpenAIEngine(upstreams[0].url), Reads())
    upstreams[0].answer = orjson.dumps(
        {
            "id": "hunter2",
            "model": "hunter2",
            "hunter2": 1,
            "usage": {"total_tokens": 3, "note": "hunter2"},
            "results": [
                {"index": 0, "relevance_score": 0.5, "document": {"text": "b"}},
                {"index": 1, "relevance_score": 0.25, "document": {"text": "hunter2"}},
            ],
        }
    )
    status, answer, _ = await client.post("/v1/rerank", {"model": "m", "query": "a", "documents": ["b", "c"]})
    assert status == 200
    assert answer == {
        "model": "m",
        "usage": {"total_tokens": 3},
        "results": [
            {"index": 0, "relevance_score": 0.5, "document": {"text": "b"}},
            {"index": 1, "relevance_score": 0.25, "document": {"text": None}},
        ],
    }


TWO = b64encode(struct.pack("<2f", 0.25, -1.0)).decode()
THREE = b64encode(struct.pack("<3f", 0.25, -1.0, 0.5)).decode()
BASE64 = {"encoding_format": "base64"}


@pytest.mark.parametrize(
    ("asked", "vectors", "told"),
    [
        (BASE64, [TWO], [TWO]),
        (BASE64, [TWO, THREE], [None, None]),
        (BASE64, [TWO, [0.5, 0.5]], [TWO, [0.5, 0.5]]),
        (BASE64 | {"dimensions": 2}, [TWO, TWO], [TWO, TWO]),
        (BASE64 | {"dimensions": 2}, [THREE, THREE], [None, None]),
        (BASE64 | {"dimensions": 2}, ["hunter2zebrahunt"], [None]),
        (BASE64, ["hunter2zebra"], [None]),  # 9 bytes
        (BASE64, ["not base64"], [None]),
        (BASE64, [""], [None]),
        (BASE64, ["AACAvx=="], [None]),  # bits beyond the last byte
        (BASE64, ["AADAfw=="], [None]),  # not a number
        (BASE64, [TWO + "\n"], [None]),
        ({}, [TWO], [None]),
        ({"encoding_format": "float"}, [TWO], [None]),
    ],
)
async def test_a_text_is_a_vector_only_if_base64_was_asked_for_and_it_holds_whole_floats(
    serve: Serve, upstreams: list[Upstream], asked: dict[str, Any], vectors: list[Any], told: list[Any]
) -> None:  # contract 5.3
    client = await serve(OpenAIEngine(upstreams[0].url), Reads())
    data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
    upstreams[0].answer = orjson.dumps({**EMBEDDING, "data": data})
    _, answer, _ = await client.post("/v1/embeddings", {"model": "m", "input": "a", **asked})
    assert [one["embedding"] for one in answer["data"]] == told


async def test_only_embeddings_have_vectors_in_base64(
    serve: Serve, upstreams: list[Upstream]
) -> None:  # contract 5.3
    client = await serve(OpenAIEngine(upstreams[0].url), Reads())
    upstreams[0].answer = orjson.dumps({"data": [{"embedding": TWO}]})
    for path, body in (
        ("/v1/rerank", {"query": "q", "documents": ["a"]}),
        ("/v1/score", {"text_1": "q", "text_2": "a"}),
    ):
        _, answer, _ = await client.post(path, body | BASE64)
        assert answer["data"] == [{"embedding": None}]


@examples(10)
@given(seed=st.integers(0, 2**32))
async def test_nothing_that_an_upstream_says_of_its_own_gets_out(seed: int) -> None:  # contract 5.3
    await leaks_relayed.run(20, seed)


async def test_token_ids_go_on_as_they_are_without_hooks(serve: Serve, upstreams: list[Upstream]) -> None:
    client = await serve(OpenAIEngine(upstreams[0].url))
    for value in ([1, 2], [[1, 2], [3]]):
        assert (await client.post("/v1/embeddings", {"input": value}))[0] == 200
        assert upstreams[0].asked[-1][1]["input"] == value


async def test_ids_that_nobody_can_show_are_refused_where_hooks_decide(
    serve: Serve, upstreams: list[Upstream]
) -> None:
    client = await serve(OpenAIEngine(upstreams[0].url), Reads())
    assert (await client.post("/v1/embeddings", {"input": [1, 2]}))[0] == 400
    assert not upstreams[0].asked


@pytest.mark.parametrize("text", ["forbidden", "politely forbidden"])
async def test_a_refused_text_reaches_no_upstream(serve: Serve, upstreams: list[Upstream], text: str) -> None:
    client = await serve(OpenAIEngine(upstreams[0].url), Reads())
    status, answer, _ = await client.post("/v1/embeddings", {"input": text})
    assert (status, answer["error"]["code"], answer["error"]["param"]) == (400, "content_filter", "input")
    assert not upstreams[0].asked


async def test_hooks_keep_what_they_do_not_read_from_the_upstream(
    serve: Serve, upstreams: list[Upstream]
) -> None:
    client = await serve(OpenAIEngine(upstreams[0].url), Reads())
    await client.post("/v1/embeddings", {"input": "a", "user": "ann"})
    assert upstreams[0].asked[0][1]["user"] not in ("ann", None)


@pytest.mark.parametrize("engine", [ScriptedEngine(lambda r: make_deltas(["Hi"]))])
async def test_an_engine_without_an_upstream_says_so(serve: Serve, engine: Any) -> None:
    client = await serve(engine)
    status, answer, _ = await client.post("/v1/embeddings", {"input": "a"})
    assert (status, answer["error"]["type"]) == (501, "server_error")


@pytest.mark.parametrize(
    ("body", "param"),
    [({}, "input"), ({"input": []}, "input"), ({"input": 5}, "input"), ({"input": [[]]}, "input")],
)
async def test_a_body_without_a_text_is_refused(
    serve: Serve, upstreams: list[Upstream], body: dict[str, Any], param: str
) -> None:
    client = await serve(OpenAIEngine(upstreams[0].url))
    status, answer, _ = await client.post("/v1/embeddings", body)
    assert status == 400
    assert answer["error"]["param"].startswith(param)
    assert (await client.post("/v1/score", {}))[0] == 400


async def test_an_upstreams_failure_is_told_as_everywhere(serve: Serve, upstreams: list[Upstream]) -> None:
    upstream = upstreams[0]
    client = await serve(OpenAIEngine(upstream.url), Reads())
    for status, answer, told in (
        (400, b'{"error": {"message": "hunter2"}}', 400),
        (404, b'{"error": {"message": "no", "param": "model"}}', 404),
        (500, b"hunter2", 502),
        (200, b"hunter2", 502),
        (200, b"[]", 502),
    ):
        upstream.status, upstream.answer = status, answer
        got, body, _ = await client.post("/v1/embeddings", {"input": "a"})
        assert got == told
        assert "hunter2" not in str(body)


async def test_a_pool_asks_another_upstream(serve: Serve, upstreams: list[Upstream]) -> None:
    for upstream in upstreams:
        upstream.status = 503
    first, second = (Replica(upstream.url, OpenAIEngine(upstream.url)) for upstream in upstreams)
    client = await serve(PoolEngine([first, second]))
    assert (await client.post("/v1/embeddings", {"input": "a"}))[0] == 503
    assert [len(upstream.asked) for upstream in upstreams] == [1, 1]
    upstreams[1].status = 200
    for _ in range(3):
        assert (await client.post("/v1/embeddings", {"input": "a"}))[0] == 200


async def test_the_sdk_gets_its_vectors(serve: Serve, upstreams: list[Upstream]) -> None:
    client = await serve(OpenAIEngine(upstreams[0].url))
    async with AsyncOpenAI(base_url=f"{client.url}/v1", api_key="any") as openai:
        made = await openai.embeddings.create(model="m", input="a", encoding_format="float")
    assert made.data[0].embedding == [0.25, -1.0]
    assert upstreams[0].asked[-1][1]["encoding_format"] == "float"
