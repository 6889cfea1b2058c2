"""Weir's guards as a middleware of `vllm serve`, before an ASGI app that answers as vLLM does."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import weir
from benchmarks.leaks_wrappers import run
from benchmarks.wrapped_answers import by_vllm
from engine.protocol import Delta, GenerationRequest
from tests.helpers import examples, make_token
from tests.library.wrappers.servers import chat_stream
from weir.adapters.passage import GUARDED, OPEN
from weir.adapters.vllm import Guard

PHRASES = ["the weir", "heron"]
HOOKS = [{"path": "phrases", "args": {"phrases": PHRASES, "prompt": "refuse"}}]
ENDING = [{"path": "phrases", "args": {"phrases": PHRASES, "action": "terminate"}}]
WORDS = ["the ", "weir", "the we", "ir", " heron", "her", "on", " ", ".", "é🎉"]
CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
Make = Callable[..., Guard]


class VLLM:
    """Answers with these pieces. Any path answers: a secret, so that a test sees what goes round."""

    def __init__(self, *pieces: bytes, status: int = 200) -> None:
        self.pieces, self.status = pieces, status
        self.asked: list[tuple[Any, Any]] = []
        self.given = 0
        self.was_stopped = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"] if scope.get("method") == "POST" else b""
        self.asked.append((scope, json.loads(body) if body else None))
        headers = [(b"content-type", b"text/event-stream"), (b"x-secret", b"heron")]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        try:
            for piece in self.pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                self.given += 1
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except OSError:
            self.was_stopped = True
            raise


class Got:
    def __init__(self) -> None:
        self.status, self.headers = 0, dict[bytes, bytes]()
        self.body, self.num_ends = b"", 0
        self.closed: int | None = None

    async def send(self, message: Any) -> None:
        match message["type"]:
            case "http.response.start":
                self.status, self.headers = message["status"], dict(message["headers"])
            case "websocket.close":
                self.closed = message["code"]
            case _:
                assert self.status
                assert not self.num_ends
                self.body += message["body"]
                self.num_ends += not message["more_body"]

    @property
    def events(self) -> list[Any]:
        lines = [line[6:] for line in self.body.decode().splitlines() if line.startswith("data: {")]
        return [json.loads(line) for line in lines]

    @property
    def content(self) -> str:
        choices = [choice for event in self.events for choice in event.get("choices", ())]
        return "".join(choice["delta"].get("content") or "" for choice in choices)


async def ask(
    guard: Guard,
    body: Any = CHAT,
    path: str = "/v1/chat/completions",
    *,
    leaves: bool = False,
    got: Got | None = None,
    **scope: Any,
) -> Got:
    data = json.dumps(body).encode()
    messages = [
        {"type": "http.request", "body": data[:5], "more_body": True},
        {"type": "http.request", "body": data[5:], "more_body": False},
    ]
    got = got or Got()

    async def receive() -> Any:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    if leaves:
        messages = [{"type": "http.disconnect"}]
    given = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    given |= {"headers": [(b"authorization", b"Bearer key")], **scope}
    await guard(given, receive, got.send)
    return got


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    def made(app: Any, hooks: Any = HOOKS) -> Guard:
        (path := tmp_path / "weir.yaml").write_text(json.dumps({"hooks": hooks}))
        monkeypatch.setenv("WEIR_CONFIG", str(path))
        return Guard(app)

    return made


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[Guard]:
    guards = []
    with pytest.MonkeyPatch.context() as patch:
        for number, hooks in enumerate((HOOKS, ENDING)):
            (path := tmp_path_factory.mktemp("v") / f"{number}.yaml").write_text(json.dumps({"hooks": hooks}))
            patch.setenv("WEIR_CONFIG", str(path))
            guards.append(Guard(VLLM()))
    return guards


def deltas_of(words: list[str]) -> list[Delta]:
    made = [Delta(text=word, tokens=(make_token(word, number),)) for number, word in enumerate(words)]
    return [*made, Delta(finish_reason="stop")]


def answer(*words: str) -> bytes:
    return chat_stream(deltas_of([*words]))


@given(
    st.lists(st.sampled_from(WORDS), max_size=12),
    st.lists(st.integers(1, 3000)),
    st.integers(0, 1),
    st.booleans(),
)
@examples(300)
async def test_a_client_gets_what_the_library_releases(
    both: list[Guard], words: list[str], cuts: list[int], which: int, streams: bool
) -> None:
    guard, data = both[which], answer(*words)
    places = [0, *sorted({cut for cut in cuts if cut < len(data)}), len(data)]
    guard._app = VLLM(*(data[start:end] for start, end in pairwise(places)))
    got = await ask(guard, {**CHAT, "stream": streams})
    request = GenerationRequest(request_id="r", model="m", endpoint="chat")
    released = list(guard._gate.guards.open(request).deltas(deltas_of(words)))
    content = "".join(delta.text for delta in released)
    said = got.content if streams else json.loads(got.body)["choices"][0]["message"]["content"] or ""
    assert (got.status, said, got.num_ends) == (200, content, 1)
    assert b"x-secret" not in got.headers


async def test_the_engine_stops_when_a_hook_ends_the_answer(make: Make) -> None:
    vllm = VLLM(*(answer(*["a heron ", *["word "] * 50]).split(b"\n\n")[i] + b"\n\n" for i in range(40)))
    got = await ask(make(vllm, ENDING))
    assert got.content == "a "
    assert got.events[-1]["choices"][0]["finish_reason"] == "content_filter"
    assert vllm.was_stopped
    assert vllm.given < 10


async def test_vllm_is_asked_as_the_hooks_let_it(make: Make) -> None:
    vllm = VLLM(answer("Hi."))
    guard = make(vllm, [{"path": "phrases", "args": {"phrases": PHRASES, "prompt": "redact"}}])
    asked = {**CHAT, "messages": [{"role": "user", "content": "a heron?"}], "stream": False}
    got = await ask(guard, asked, query_string=b"x=1")
    ((scope, body),) = vllm.asked
    assert (scope["path"], scope["query_string"], body["stream"]) == ("/v1/chat/completions", b"", True)
    assert body["messages"] == [{"role": "user", "content": "a [phrase]?"}]
    assert (b"authorization", b"Bearer key") in scope["headers"]
    assert json.loads(got.body)["choices"][0]["message"]["content"] == "Hi."


async def test_a_refused_prompt_does_not_reach_vllm(make: Make) -> None:
    vllm = VLLM(answer("Hi."))
    got = await ask(make(vllm), {**CHAT, "messages": [{"role": "user", "content": "a heron?"}]})
    assert (got.status, json.loads(got.body)["error"]["code"], vllm.asked) == (400, "content_filter", [])


@pytest.mark.parametrize("path", sorted(GUARDED - {"/v1/chat/completions"}))
async def test_the_other_paths_are_guarded(path: str, make: Make) -> None:
    if path == "/v1/completions":
        choices = [{"index": 0, "text": text} for text in ("a her", "on.")]
        choices.append({"index": 0, "text": "", "finish_reason": "stop"})
        data = b"".join(b"data: %b\n\n" % json.dumps({"choices": [one]}).encode() for one in choices)
        got = await ask(make(VLLM(data + b"data: [DONE]\n\n")), {"model": "m", "prompt": "Hi"}, path)
    else:
        got = await ask(make(VLLM(answer("a her", "on."))), {"model": "m", "input": "Hi"}, path)
    assert got.status == 200
    assert b"a [phrase]." in got.body
    assert b"heron" not in got.body


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1/chat/completions/",
        "/V1/chat/completions",
        "//v1/chat/completions",
        "/v1/chat/completions/batch",
        "/v1/embeddings",
        "/v1/responses/resp_1",
        "/tokenize",
        "/detokenize",
        "/pooling",
        "/invocations",
        "/inference/v1/generate",
        "/v1/messages",
        "/v1/audio/transcriptions",
        "/collective_rpc",
        "/docs",
        "/health/x",
    ],
)
async def test_nothing_goes_round(method: str, path: str, make: Make) -> None:
    vllm = VLLM(b"heron")
    got = await ask(make(vllm), CHAT, path, method=method)
    assert (got.status, vllm.asked) == (404, [])


@pytest.mark.parametrize("path", sorted(OPEN))
async def test_paths_without_text_pass_when_they_are_read(path: str, make: Make) -> None:
    vllm = VLLM(b"ok")
    assert (await ask(make(vllm), CHAT, path, method="GET")).body == b"ok"
    assert (await ask(make(vllm), CHAT, path)).status == 404


async def test_a_websocket_is_closed_and_the_lifespan_passes(make: Make) -> None:
    vllm = VLLM(b"ok")
    assert (await ask(make(vllm), type="websocket")).closed == 1008
    assert not vllm.asked
    await ask(make(vllm), type="lifespan", method="")
    assert len(vllm.asked) == 1


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize(
    ("pieces", "status", "expected"),
    [
        ((b'{"error": {"message": "heron", "code": 404}}',), 404, 404),
        ((b"data: {not JSON}\n\n",), 200, 502),
        ((b"<html>heron</html>",), 200, 502),
        ((), 200, 502),
    ],
)
async def test_what_is_no_answer_is_an_error_in_weirs_words(
    pieces: tuple[bytes, ...], status: int, expected: int, streams: bool, make: Make
) -> None:
    got = await ask(make(VLLM(*pieces, status=status)), {**CHAT, "stream": streams})
    assert (got.status, got.num_ends) == (expected, 1)
    assert b"heron" not in got.body


class Raises:
    def __call__(self, chunk: weir.Chunk) -> weir.Verdict:
        if "boom" in chunk.text:
            raise RuntimeError(chunk.text)
        return weir.emit(chunk.pending)


@pytest.mark.parametrize(("first", "status"), [("fine ", 200), ("", 500)])
async def test_a_hook_that_raises_ends_its_answer(first: str, status: int, make: Make) -> None:
    vllm = VLLM(*(part + b"\n\n" for part in answer(first or "boom", "boom", "later").split(b"\n\n")))
    got = await ask(make(vllm, f"{__name__}:Raises"))
    assert (got.status, got.content, got.num_ends) == (status, first, 1)
    assert b"boom" not in got.body
    assert b"guardrail_error" in got.body


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("num_pieces", [0, 1])
async def test_an_exception_of_vllms_is_an_error_in_weirs_words(
    num_pieces: int, streams: bool, make: Make
) -> None:
    """vLLM's handler of errors stands outside all middlewares, and answers with the exception's text."""
    vllm = VLLM(*[answer("a word ", "and")[:-120]][:num_pieces])

    async def fails(scope: Any, receive: Any, send: Any) -> None:
        await vllm(scope, receive, lambda message: send({**message, "more_body": True}))
        raise RuntimeError("heron")

    got = Got()
    with pytest.raises(RuntimeError, match="heron"):  # vLLM's log has it
        await ask(make(fails), {**CHAT, "stream": streams}, got=got)
    assert (got.status, got.num_ends) == (200 if streams and num_pieces else 500, 1)
    assert b"heron" not in got.body
    assert b"had an error" in got.body


async def test_an_answer_that_breaks_off_is_no_whole_one(make: Make) -> None:
    got = await ask(make(VLLM(answer("a word ", "and")[:-120])), CHAT)
    assert b"error" in got.body
    assert got.num_ends == 1


async def test_a_client_that_leaves_asks_nothing(make: Make) -> None:
    vllm = VLLM(answer("Hi."))
    got = await ask(make(vllm), leaves=True)
    assert (got.status, vllm.asked) == (0, [])


def test_nothing_of_a_forbidden_span_gets_out() -> None:
    """`make bench NAME=leaks_wrappers` tries more."""
    run(300, 1, by_vllm)
