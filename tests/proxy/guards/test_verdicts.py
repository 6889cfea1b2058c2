"""Verdicts and failures of hooks, as a client sees them: on both endpoints, streaming and not."""

import asyncio
from typing import Any

import pytest

from engine.protocol import Delta
from hooks import Chunk, Verdict, emit, hold, suppress, terminate
from tests.helpers import Script, ScriptedEngine, make_deltas
from tests.proxy.conftest import CHAT, COMPLETION, Client, Serve

ENDPOINTS = [("/v1/chat/completions", CHAT), ("/v1/completions", COMPLETION)]
both_endpoints = pytest.mark.parametrize(("path", "body"), ENDPOINTS, ids=["chat", "completions"])


def saying(*words: str) -> ScriptedEngine:
    return ScriptedEngine(lambda r: [d for i in range(r.num_outputs) for d in make_deltas(words, index=i)])


def asks(body: dict[str, Any], **more: Any) -> dict[str, Any]:
    """`body`, with every option whose output could contain a token."""
    logprobs = {"logprobs": True, "top_logprobs": 5} if "messages" in body else {"logprobs": 5, "echo": True}
    return {**body, **logprobs, "return_token_ids": True, **more}


def whole_text(body: dict[str, Any], index: int = 0) -> str:
    choice = body["choices"][index]
    return str(choice["message"]["content"] if "message" in choice else choice["text"])


async def counted(client: Client, name: str) -> float:
    _, text = await client.get("/metrics")
    (line,) = [row for row in text.decode().splitlines() if row.startswith(name + " ")]
    return float(line.split()[-1])


@both_endpoints
async def test_terminate_ends_with_content_filter_and_cancels_the_engine(
    serve: Serve, path: str, body: dict[str, Any]
) -> None:  # contract 3.3
    def guard(chunk: Chunk) -> Verdict:
        return terminate("no_secrets") if "secret" in chunk.text else emit(chunk.pending)

    engine = saying("well ", "the ", "secret ", "is out")
    client = await serve(engine, Script(guard))
    stream = await client.stream(path, asks(body, stream_options={"include_usage": True}))
    assert stream.content() == "well the "
    last = stream.chunks[-2]["choices"][0]
    assert (last["finish_reason"], last["stop_reason"]) == ("content_filter", "no_secrets")
    assert stream.chunks[-1]["choices"] == []
    assert [data for _, data in stream.events].count("[DONE]") == 1
    assert "secret " not in str(stream.events)
    _, whole, _ = await client.post(path, asks(body))
    assert whole_text(whole) == "well the "
    assert whole["choices"][0]["finish_reason"] == "content_filter"
    assert "secret " not in str(whole)
    assert (engine.running, engine.aborted) == (0, 2)
    assert await counted(client, 'weir_hook_verdicts_total{action="terminate",hook="hook0"}') == 2
    assert await counted(client, "weir_num_requests_running") == 0


@both_endpoints
async def test_a_hook_that_raises_at_once_is_a_500(serve: Serve, path: str, body: dict[str, Any]) -> None:
    """Contract 4.2: before the first byte, HTTP 500 with an error object."""

    def fail(chunk: Chunk) -> Verdict:
        raise ValueError(f"I saw {chunk.text}") if chunk.request.model == "m" else suppress()

    def guard(chunk: Chunk) -> Verdict:
        return fail(chunk) if chunk.request.model == "m" else emit(chunk.pending)

    engine = saying("hunter2", " again")
    client = await serve(engine, Script(guard))
    for stream in (True, False):
        status, answer, _ = await client.post(path, {**body, "stream": stream})
        assert status == 500
        assert answer["error"]["type"] == "guardrail_error"
        assert "hunter2" not in str(answer)
        assert "ValueError" not in str(answer)
    assert (engine.running, engine.aborted) == (0, 2)


@both_endpoints
async def test_a_hook_that_raises_later_is_one_error_event_then_done(
    serve: Serve, path: str, body: dict[str, Any]
) -> None:  # contract 4.2
    def guard(chunk: Chunk) -> Verdict:
        if "hunter2" in chunk.text:
            raise ValueError(chunk.text)
        return emit(chunk.pending)

    engine = saying("fine ", "hunter2", " more")
    client = await serve(engine, Script(guard))
    stream = await client.stream(path, asks(body))
    assert stream.content() == "fine "
    assert [name for name, _ in stream.events] == [None, "error", None]
    assert stream.events[1][1]["error"]["type"] == "guardrail_error"
    assert stream.events[2][1] == "[DONE]"
    assert "hunter2" not in str(stream.events)
    status, answer, _ = await client.post(path, asks(body))
    assert (status, answer["error"]["type"]) == (500, "guardrail_error")
    assert "fine" not in str(answer)
    assert (engine.running, engine.aborted) == (0, 2)


@both_endpoints
async def test_a_failing_request_does_not_affect_a_hundred_others(
    serve: Serve, path: str, body: dict[str, Any]
) -> None:  # contract 4.1
    def guard(chunk: Chunk) -> Verdict:
        if chunk.request.user == "bad" and "three" in chunk.text:
            raise RuntimeError
        return emit(chunk.pending)

    words = ["one ", "two ", "three ", "four"]
    client = await serve(saying(*words), Script(guard))
    users = ["bad" if i % 11 == 5 else f"u{i}" for i in range(110)]
    streams = await asyncio.gather(*(client.stream(path, {**body, "user": user}) for user in users))
    for user, stream in zip(users, streams, strict=True):
        failed = [name for name, _ in stream.events].count("error")
        assert failed == (user == "bad")
        assert stream.content() == ("one two " if user == "bad" else "".join(words))
        assert stream.events[-1] == (None, "[DONE]")


@both_endpoints
async def test_streamed_and_whole_answers_are_the_same(serve: Serve, path: str, body: dict[str, Any]) -> None:
    """Contract 2.5: a client gets the same with and without streaming."""

    def guard(chunk: Chunk) -> Verdict:
        if chunk.is_final:
            return emit(chunk.pending)
        return suppress() if "c" in chunk.text_diff else hold(min(3, len(chunk.pending)))

    client = await serve(saying("ab", "bcd", "de", "ef", "g"), Script(guard))
    asked = asks(body, n=2)
    stream = await client.stream(path, asked)
    _, whole, _ = await client.post(path, asked)
    for index in range(2):
        streamed = [c for chunk in stream.chunks for c in chunk["choices"] if c["index"] == index]
        assert stream.content(index) == whole_text(whole, index)
        assert [i for c in streamed for i in c["token_ids"]] == whole["choices"][index]["token_ids"]
        parts = [c["logprobs"] for c in streamed if c["logprobs"]]
        key = "content" if "messages" in body else "tokens"
        assert [x for part in parts for x in part[key]] == whole["choices"][index]["logprobs"][key]


@both_endpoints
async def test_a_rewrite_leaves_no_trace_of_the_original(
    serve: Serve, path: str, body: dict[str, Any]
) -> None:
    client = await serve(
        saying("my ", "hunter2", "!"), Script(lambda c: emit(c.pending.replace("hunter2", "***")))
    )
    stream = await client.stream(path, asks(body))
    assert stream.content() == "my ***!"
    _, whole, _ = await client.post(path, asks(body))
    assert whole_text(whole) == "my ***!"
    assert "hunter2" not in str(stream.events) + str(whole)
    assert whole["choices"][0]["token_ids"] == [0, 2]


@both_endpoints
async def test_an_answer_that_is_suppressed_entirely_is_empty(
    serve: Serve, path: str, body: dict[str, Any]
) -> None:  # contract 3.2, 5.2
    client = await serve(saying("my ", "hunter2"), Script(lambda c: suppress()))
    stream = await client.stream(path, asks(body))
    assert (stream.content(), len(stream.chunks)) == ("", 1)
    assert stream.chunks[0]["choices"][0]["finish_reason"] == "stop"
    _, whole, _ = await client.post(path, asks(body))
    assert (whole_text(whole), whole["choices"][0]["token_ids"]) == ("", [])


@pytest.mark.parametrize("stop_reason", ["hunter2", 7])
@pytest.mark.parametrize(
    ("path", "body"),
    [*ENDPOINTS, ("/v1/responses", {"model": "m", "input": "Hi"})],
    ids=lambda v: str(v)[:20],
)
async def test_the_stop_reason_does_not_reveal_withheld_text(
    serve: Serve, path: str, body: dict[str, Any], stop_reason: str | int
) -> None:
    """Contract 2.7, 6.2: a client could give every word as a stop string, and learn which one came."""
    deltas = [Delta(text="my "), Delta(finish_reason="stop", stop_reason=stop_reason)]
    client = await serve(ScriptedEngine(lambda r: deltas), Script(lambda c: suppress()))
    stops = {"stop": ["hunter2"], "stop_token_ids": [7]}
    stream = await client.stream(path, {**body, **stops})
    _, whole, _ = await client.post(path, {**body, **stops})
    for told in (*stream.chunks, *(data for _, data in stream.events if data != "[DONE]"), whole):
        for choice in (told, told.get("response", {}), *told.get("choices", ())):
            assert choice.get("stop_reason") is None


async def test_terminating_one_choice_ends_its_siblings(serve: Serve) -> None:  # contract 5.1
    hook = Script(lambda c: terminate("x") if c.output_index == 1 and "b" in c.text else emit(c.pending))

    def interleaved(request: Any) -> list[Delta]:
        outputs = [make_deltas("abc", index=i) for i in range(3)]
        return [delta for step in zip(*outputs, strict=True) for delta in step]

    client = await serve(ScriptedEngine(interleaved), hook)
    stream = await client.stream("/v1/chat/completions", {**CHAT, "n": 3})
    assert [stream.content(i) for i in range(3)] == ["ab", "a", "a"]
    finishes = [
        (c["index"], c["finish_reason"], c["stop_reason"])
        for chunk in stream.chunks
        for c in chunk["choices"]
        if c["finish_reason"]
    ]
    assert sorted(finishes) == [(i, "content_filter", "x") for i in range(3)]


async def test_a_hook_knows_the_caller_and_whether_the_request_streams(
    serve: Serve,
) -> None:  # contract 2.1, 2.2
    hook = Script(lambda c: emit(c.pending))
    client = await serve(saying("a"), hook)
    await client.stream("/v1/chat/completions", {**CHAT, "user": "u1", "metadata": {"team": "t"}})
    await client.post("/v1/completions", COMPLETION)
    streamed, whole = [c for c in hook.chunks if c.text == "a" and not c.is_final]
    assert (streamed.streaming, streamed.request.user, streamed.request.endpoint) == (True, "u1", "chat")
    assert streamed.request.metadata == {"team": "t"}
    assert (whole.streaming, whole.request.prompts) == (False, ("Hi",))
