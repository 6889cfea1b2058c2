"""Weir in front of another OpenAI-compatible server (here another Weir), with the same guarantees."""

import asyncio
import json
from typing import Any

import pytest

from engine.protocol import Delta, RequestError, Token, TopLogprob, Usage
from engine.upstream.errors import upstream_error
from engine.upstream.openai.engine import OpenAIEngine
from hooks import Chunk, Verdict, emit, terminate
from tests.helpers import Script, ScriptedEngine, make_deltas, until
from tests.proxy.conftest import CHAT, COMPLETION, Client, Serve

CHATS = "/v1/chat/completions"
ASKS = {**CHAT, "logprobs": True, "top_logprobs": 2, "return_token_ids": True}


def token(text: str, token_id: int) -> Delta:
    top = (TopLogprob(token_id, text.encode(), -0.25), TopLogprob(99, b"other", -2.0))
    tokens = (Token(token_id, text, text.encode(), -0.25, top),)
    return Delta(text=text, tokens=tokens, usage=Usage(3, token_id))


def hello(request: Any) -> list[Delta]:
    return [
        *(token(text, i) for i, text in enumerate(["Hel", "lo ", "🎉", "!"], 1)),
        Delta(finish_reason="stop"),
    ]


async def in_front_of(serve: Serve, engine: ScriptedEngine, *hooks: Any) -> tuple[Client, Client]:
    back = await serve(engine)
    return await serve(OpenAIEngine(back.url), *hooks, names=[]), back


def without_identity(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in ("id", "created")}


@pytest.mark.parametrize(
    ("path", "body"), [(CHATS, ASKS), ("/v1/completions", {**COMPLETION, "logprobs": 2})]
)
async def test_an_answer_passes_unchanged(serve: Serve, path: str, body: dict[str, Any]) -> None:
    front, back = await in_front_of(serve, ScriptedEngine(hello), Script(lambda c: emit(c.pending)))
    assert without_identity((await front.post(path, body))[1]) == without_identity(
        (await back.post(path, body))[1]
    )
    assert (await front.stream(path, body)).content() == "Hello 🎉!"


@pytest.mark.parametrize(
    ("path", "body"), [(CHATS, ASKS), ("/v1/completions", {**COMPLETION, "logprobs": 2})]
)
async def test_logprobs_go_on_after_a_text_without_them(
    serve: Serve, path: str, body: dict[str, Any]
) -> None:
    back = await serve(ScriptedEngine(hello), Script(lambda c: emit(c.pending.replace("lo ", "p, "))))
    front = await serve(OpenAIEngine(back.url), Script(lambda c: emit(c.pending)), names=[])
    whole = (await front.post(path, body))[1]
    assert without_identity(whole) == without_identity((await back.post(path, body))[1])
    logprobs = whole["choices"][0]["logprobs"]
    said = [one["token"] for one in logprobs["content"]] if path == CHATS else logprobs["tokens"]
    assert said == ["Hel", "🎉", "!"]
    chunks = (await front.stream(path, body)).chunks
    assert sum(bool(chunk["choices"] and chunk["choices"][0].get("logprobs")) for chunk in chunks) == 3


PROMPT = (
    Token(1, "The", b"The"),
    Token(2, " sky", b" sky", -3.0, (TopLogprob(5, b" sea", -1.0),), rank=9),
    Token(3, " is", b" is", -0.25, (TopLogprob(3, b" is", -0.25),), rank=1),
)


def with_prompt(request: Any) -> list[Delta]:
    echo = Delta(text="The sky is", tokens=PROMPT, channel="echo", prompt_token_ids=(1, 2, 3))
    return [echo, *hello(request)]


@pytest.mark.parametrize(
    ("path", "body"), [(CHATS, CHAT), ("/v1/completions", {**COMPLETION, "prompt": "The sky is"})]
)
async def test_logprobs_of_the_prompt_pass_unless_hooks_withhold_their_text(
    serve: Serve, path: str, body: dict[str, Any]
) -> None:  # contract 5.3
    asked = {**body, "prompt_logprobs": 1}
    front, back = await in_front_of(serve, ScriptedEngine(with_prompt), Script(lambda c: emit(c.pending)))
    whole = without_identity((await back.post(path, asked))[1])
    assert '"5": ' in json.dumps(whole)
    assert without_identity((await front.post(path, asked))[1]) == whole
    hook = Script(lambda c: emit(c.pending.replace("sky", "***")))
    front, _ = await in_front_of(serve, ScriptedEngine(with_prompt), hook)
    told = (await front.post(path, asked))[1]
    assert "sky" not in str(told)
    assert "sea" not in str(told)


async def test_the_upstreams_models_are_listed(serve: Serve) -> None:
    front, _ = await in_front_of(serve, ScriptedEngine(hello))
    status, body = await front.get("/v1/models")
    assert (status, b'"id":"m"' in body) == (200, True)


async def test_a_terminate_closes_the_upstreams_connection(serve: Serve) -> None:
    def guard(chunk: Chunk) -> Verdict:
        found = chunk.pending.find("lo")
        return emit(chunk.pending) if found < 0 else terminate("x", after=found)

    engine = ScriptedEngine(lambda r: [*hello(r)[:2], asyncio.Event()])
    front, _ = await in_front_of(serve, engine, Script(guard))
    stream = await front.stream(CHATS, ASKS)
    assert stream.content() == "Hel"
    assert stream.chunks[-1]["choices"][0]["finish_reason"] == "content_filter"
    assert "lo " not in str(stream.events)
    await until(lambda: not engine.running)
    assert engine.aborted == 1


async def test_with_hooks_an_upstreams_stop_string_is_not_repeated(serve: Serve) -> None:
    def stopped(request: Any) -> list[Delta]:
        return [token("my ", 1), Delta(finish_reason="stop", stop_reason=request.sampling.stop[0])]

    for hooks, told in (((), " secret"), ((Script(lambda c: emit(c.pending)),), None)):
        front, _ = await in_front_of(serve, ScriptedEngine(stopped), *hooks)
        _, body, _ = await front.post(CHATS, {**ASKS, "stop": " secret"})
        assert (body["choices"][0]["finish_reason"], body["choices"][0]["stop_reason"]) == ("stop", told)


async def test_code_of_a_client_never_reaches_an_upstream(serve: Serve) -> None:  # contract 7.3
    engine = ScriptedEngine(hello)
    front, _ = await in_front_of(serve, engine)
    for code in ({"logits_processors": ["os.system"]}, {"chat_template": "{{ 1 }}"}):
        status, body, _ = await front.post(CHATS, {**CHAT, **code})
        assert (status, body["error"]["param"]) == (400, next(iter(code)))
    assert engine.requests == []


async def test_an_upstreams_refusal_keeps_its_status_and_message(serve: Serve) -> None:
    refusal = RequestError("There is no such role.", param="messages", code="bad_role")
    front, _ = await in_front_of(serve, ScriptedEngine(lambda r: [refusal]))
    for stream in (False, True):
        status, body, _ = await front.post(CHATS, {**CHAT, "stream": stream})
        assert status == 400
        assert body["error"] == {
            "message": "There is no such role.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "bad_role",
        }


@pytest.mark.parametrize(
    ("status", "param", "told"),
    [
        (400, "messages[0].hunter2", "messages"),
        (404, "messages", "messages"),
        (422, "hunter2", None),
        (413, None, None),
        (429, "messages", None),
    ],
)
async def test_with_hooks_the_message_of_an_upstreams_refusal_is_withheld(
    serve: Serve, status: int, param: str | None, told: str | None
) -> None:  # contract 5.3
    body = {"error": {"message": "cannot parse hunter2", "param": param, "code": "hunter2"}}
    refusal = upstream_error(status, body, {"model", "messages", "stream"})
    for hooks, is_told in (((), True), ((Script(lambda c: emit(c.pending)),), False)):
        front, _ = await in_front_of(serve, ScriptedEngine(lambda r: [refusal]), *hooks)
        for stream in (False, True):
            got, answer, _ = await front.post(CHATS, {**CHAT, "stream": stream})
            assert got == status
            assert ("hunter2" in str(answer)) == is_told
            if not is_told:
                assert answer["error"]["param"] == told


SHORTEN = "Please reduce the length of the prompt or of the answer."
LONG = "This model's maximum context length is {} tokens. However, the request is longer. " + SHORTEN


@pytest.mark.parametrize(
    ("message", "code", "told"),
    [
        (
            "This model's maximum context length is 100 tokens. However, you said 'hunter2'.",
            None,
            LONG.format(100),
        ),
        (
            "You passed 5000 tokens of hunter2. However, the model's context length is only 2048 tokens",
            None,
            LONG.format(2048),
        ),
        (
            "Input tokens exceed the configured limit of 272,000 tokens: hunter2",
            "context_length_exceeded",
            LONG.format(272000),
        ),
        ("Input length (hunter2) exceeds model's maximum context length (4096).", None, LONG.format(4096)),
        ("The input (9 tokens) is longer than the model's context length (8 tokens).", None, LONG.format(8)),
        ("max_tokens=9 cannot be greater than max_model_len=8. hunter2", None, LONG.format(8)),
        ("The decoder prompt (length 9) is longer than the maximum model length of 8.", None, LONG.format(8)),
        ("prompt is too long: 2,090 tokens > 2,048 maximum; hunter2", None, LONG.format(2048)),
        (
            "input length and `max_tokens` exceed context limit: 64 + 4096 > 1024; hunter2",
            None,
            LONG.format(1024),
        ),
        (
            "hunter2",
            "context_length_exceeded",
            "This model's maximum context length is exceeded: the request is longer. " + SHORTEN,
        ),
    ],
)
async def test_a_prompt_that_an_upstream_finds_too_long_is_told_in_own_words(
    serve: Serve, message: str, code: str | None, told: str
) -> None:
    body = {"error": {"message": message, "param": None, "code": code}}
    refusal = upstream_error(400, body, {"messages"})
    front, _ = await in_front_of(
        serve, ScriptedEngine(lambda r: [refusal]), Script(lambda c: emit(c.pending))
    )
    status, answer, _ = await front.post(CHATS, CHAT)
    assert (status, answer["error"]["message"]) == (400, told)
    assert answer["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("theirs", "error"),
    [
        (404, {"message": "The model `theirs` does not exist.", "code": 404}),
        (404, {"message": "hunter2", "param": "model"}),
        (404, {"message": "no", "code": "model_not_found"}),
        (404, {"message": "model: theirs", "type": "not_found_error"}),
        (400, {"message": "/chat/completions: Invalid model name passed in model=theirs.", "code": "400"}),
        (400, {"message": "theirs is not a valid model ID", "code": 400}),
    ],
)
async def test_an_upstreams_unknown_model_is_told_by_the_callers_name(
    serve: Serve, theirs: int, error: dict[str, Any]
) -> None:
    refusal = upstream_error(theirs, {"error": error}, {"model"}, model="mine")
    for hooks in ((), (Script(lambda c: emit(c.pending)),)):
        front, _ = await in_front_of(serve, ScriptedEngine(lambda r: [refusal]), *hooks)
        status, answer, _ = await front.post(CHATS, CHAT)
        assert status == 404
        assert answer["error"] == {
            "message": "The model 'm' is not served here.",
            "type": "not_found_error",
            "param": "model",
            "code": "model_not_found",
        }


@pytest.mark.parametrize(
    ("header", "told"), [("7", "7"), (None, "1"), ("Wed, 1 Jan 2025", "1"), ("9" * 8, "3600")]
)
async def test_a_rate_limit_says_when_to_come_again(serve: Serve, header: str | None, told: str) -> None:
    error = upstream_error(429, {"error": {"message": "slow down"}}, retry_after=header)
    for hooks in ((), (Script(lambda c: emit(c.pending)),)):
        client = await serve(ScriptedEngine(lambda r: [error]), *hooks)
        status, _, headers = await client.post(CHATS, CHAT)
        assert (status, headers["Retry-After"]) == (429, told)


async def test_a_model_that_the_upstream_does_not_list_is_not_found(serve: Serve) -> None:
    front, _ = await in_front_of(serve, ScriptedEngine(hello))
    assert (await front.get("/v1/models/m"))[0] == 200
    assert (await front.get("/v1/models/none"))[0] == 404


async def test_a_batch_of_prompts_keeps_its_order(serve: Serve) -> None:
    def each(request: Any) -> list[Delta]:
        return [delta for i in range(request.num_outputs) for delta in make_deltas([f"out{i}"], index=i)]

    front, _ = await in_front_of(serve, ScriptedEngine(each))
    _, body, _ = await front.post("/v1/completions", {"prompt": ["a", "b"], "n": 2})
    assert [choice["text"] for choice in body["choices"]] == ["out0", "out1", "out2", "out3"]


@pytest.mark.parametrize("path", [CHATS, "/v1/completions", "/v1/responses"])
async def test_salt_and_priority_reach_the_upstream(serve: Serve, path: str) -> None:
    engine = ScriptedEngine(hello)
    front, _ = await in_front_of(serve, engine)
    body = {"model": "m", "messages": CHAT["messages"], "prompt": "Hi", "input": "Hi"}
    needed = {CHATS: "messages", "/v1/completions": "prompt", "/v1/responses": "input"}[path]
    asked = {"model": "m", needed: body[needed]}
    assert (await front.post(path, {**asked, "cache_salt": "tenant", "priority": -3}))[0] == 200
    assert (await front.post(path, asked))[0] == 200
    assert [(r.cache_salt, r.priority) for r in engine.requests] == [("tenant", -3), (None, 0)]
    assert not any(r.extra.keys() & {"cache_salt", "priority"} for r in engine.requests)


async def test_best_of_is_refused_for_an_upstream(serve: Serve) -> None:
    engine = ScriptedEngine(hello)
    front, _ = await in_front_of(serve, engine)
    status, body, _ = await front.post("/v1/completions", {**COMPLETION, "best_of": 2})
    assert (status, body["error"]["param"], engine.requests) == (400, "best_of", [])
