"""Does anything that an upstream says of its own get out of an answer to embeddings, ranks or scores?

`make bench NAME=leaks` runs it. Random answers hold a secret anywhere: in names, in values, and in the place
of a vector. No hook has seen it.
"""

import random
import struct
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from typing import Any

import aiohttp
import orjson
from aiohttp import web

from benchmarks.leak_guards import Observer
from engine.upstream.openai.engine import OpenAIEngine
from hooks.loading.loader import LoadedHook
from hooks.pipeline.pipeline import Pipeline
from proxy.deployment.deployment import Deployment
from proxy.http.app import Server
from proxy.settings.serve import ServeSettings

SECRET = "hunter2zebra"
"""Letters of base64, so that a text with it may look like a vector."""
NUM_DIMENSIONS = 8
_FORMATS = (None, "float", "base64")
_MOST_TEXTS = 3


def asked(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """A path, and the body of a request."""
    texts = [f"text {i}" for i in range(rng.randint(1, _MOST_TEXTS))]
    kind = rng.choice(("embeddings", "rerank", "score"))
    if kind == "rerank":
        return kind, {"query": "q", "documents": texts}
    if kind == "score":
        return kind, {"text_1": "q", "text_2": texts}
    form = rng.choice(_FORMATS)
    given = {"encoding_format": form, "dimensions": rng.choice((None, NUM_DIMENSIONS))}
    return kind, {"input": texts, **{name: value for name, value in given.items() if value is not None}}


def said(rng: random.Random, kind: str, body: dict[str, Any]) -> Any:
    """The upstream's answer, with the secret in one to three places."""
    answer = _plain_answer(rng, kind, body)
    for _ in range(rng.randint(1, 3)):
        _plant(rng, answer, _text(rng, body))
    return answer


def _plain_answer(rng: random.Random, kind: str, body: dict[str, Any]) -> dict[str, Any]:
    usage = {"prompt_tokens": 3, "total_tokens": 3}
    if kind == "rerank":
        ranked = [
            {"index": i, "relevance_score": 0.5, "document": {"text": text}}
            for i, text in enumerate(body["documents"])
        ]
        return {"id": "r", "model": "theirs", "usage": usage, "results": ranked}
    if kind == "score":
        scored = [{"object": "score", "index": i, "score": 0.5} for i in range(len(body["text_2"]))]
        return {"id": "s", "object": "list", "model": "theirs", "data": scored, "usage": usage}
    made = [
        {"object": "embedding", "index": i, "embedding": _vector(rng, body)}
        for i in range(len(body["input"]))
    ]
    return {"object": "list", "model": "theirs", "data": made, "usage": usage}


def _vector(rng: random.Random, body: dict[str, Any]) -> str | list[float]:
    floats = [rng.uniform(-1, 1) for _ in range(NUM_DIMENSIONS)]
    if body.get("encoding_format") != "base64":
        return floats
    return b64encode(struct.pack(f"<{NUM_DIMENSIONS}f", *floats)).decode()


def _text(rng: random.Random, body: dict[str, Any]) -> str:
    """A text with the secret. None is a vector that the request asks for: each has another length."""
    is_bounded = "dimensions" in body
    padded = [SECRET + "A" * length for length in (range(12) if is_bounded else (0, 1, 2, 3, 5, 6, 7, 8))]
    return rng.choice((*padded, f"the {SECRET}", f"{SECRET}=", f"{SECRET}AA=="))


def _plant(rng: random.Random, answer: Any, text: str) -> None:
    """Put the text in the place of a value, or of a name."""
    places = list(_places(answer))
    holder, name = rng.choice(places)
    if isinstance(holder, dict) and rng.random() < 0.3:
        holder[text] = holder[name]
    else:
        holder[name] = rng.choice((text, text, [text], {"text": text}))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in items:
        yield value, name
        yield from _places(one)


class _Upstream:
    """Answers with what it is to say next."""

    def __init__(self) -> None:
        self.answer: Any = {}

    async def post(self, request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=orjson.dumps(self.answer), content_type="application/json")


async def run(num_answers: int, seed: int) -> Counter[str]:
    """Ask for so many answers. Returns how many each endpoint gave. Raises `AssertionError`."""
    rng, counts = random.Random(seed), Counter[str]()
    upstream, app = _Upstream(), web.Application()
    app.router.add_post("/v1/{path:.*}", upstream.post)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    engine = OpenAIEngine(f"http://127.0.0.1:{runner.addresses[0][1]}")
    pipeline = Pipeline([LoadedHook.of("observer", Observer())])
    settings = ServeSettings(port=0, access_log=False)
    server = Server(Deployment.of_one(engine, pipeline, settings.base_model, ["m"]), settings)
    try:
        url = await server.start()
        async with aiohttp.ClientSession() as http:
            for _ in range(num_answers):
                kind, body = asked(rng)
                upstream.answer = said(rng, kind, body)
                async with http.post(f"{url}/v1/{kind}", json=body) as response:
                    raw = await response.text()
                    assert response.status == 200, raw
                assert SECRET not in raw + str(response.headers), (body, upstream.answer, raw)
                counts[kind] += 1
    finally:
        await server.stop()
        await runner.cleanup()
    return counts
