"""The logprobs of a prompt, from an upstream's whole answer."""

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from engine.protocol import Delta, EngineError, GenerationRequest, RequestError, SamplingParams, Usage
from engine.upstream.openai.engine import OpenAIEngine
from engine.upstream.openai.whole import WholeTranslator
from tests.engine.upstream.openai.asked import chat, completion
from tests.processes import WAIT_LIMIT

ONE = SamplingParams(prompt_logprobs=1)


def told(text: str | None, logprob: Any = -1.0, rank: Any = 1) -> dict[str, Any]:
    return {"logprob": logprob, "rank": rank, "decoded_token": text}


ENTRIES = [None, {"2": told(" sky", -3.0, 9), "5": told(" sea")}, {"3": told(" is", -0.25)}]
USAGE = {"prompt_tokens": 3, "completion_tokens": 1}


def whole(**fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": " blue"}, "finish_reason": "length"}
    return {
        "choices": [choice],
        "usage": USAGE,
        "prompt_logprobs": ENTRIES,
        "prompt_token_ids": [1, 2, 3],
    } | fields


def of_completion(**fields: Any) -> dict[str, Any]:
    choice = {
        "index": 0,
        "text": " blue",
        "finish_reason": "length",
        "token_ids": [4],
        "prompt_logprobs": ENTRIES,
        "prompt_token_ids": [1, 2, 3],
    }
    return {"choices": [choice | fields], "usage": USAGE}


@asynccontextmanager
async def started(upstream: Any, answer: dict[str, Any]) -> AsyncIterator[OpenAIEngine]:
    upstream.script = lambda body: web.json_response(answer)
    engine = OpenAIEngine(upstream.url)
    try:
        await engine.start()
        yield engine
    finally:
        await engine.aclose()


async def ask(upstream: Any, answer: dict[str, Any], request: GenerationRequest) -> list[Delta]:
    async with started(upstream, answer) as engine, aclosing(engine.generate(request)) as deltas:
        return [delta async for delta in deltas]


async def test_a_chat_is_asked_for_whole_and_begins_with_its_prompt(upstream: Any) -> None:
    echo, *content = await ask(upstream, whole(), chat(sampling=ONE))
    (body,) = upstream.bodies
    assert (body["prompt_logprobs"], body["return_token_ids"]) == (1, True)
    assert not body.keys() & {"stream", "stream_options", "echo"}
    assert (echo.channel, echo.text, echo.prompt_token_ids) == ("echo", " sky is", (1, 2, 3))
    first, sky, second = echo.tokens
    assert (first.id, first.text, first.logprob) == (1, "", None)
    assert (sky.id, sky.text, sky.raw, sky.logprob, sky.rank) == (2, " sky", b" sky", -3.0, 9)
    assert [(top.id, top.raw, top.logprob) for top in sky.top] == [(5, b" sea", -1.0)]
    assert [top.id for top in second.top] == [3]
    assert "".join(delta.text for delta in content) == " blue"
    assert (content[-1].finish_reason, content[-1].usage) == ("length", Usage(3, 1))


async def test_of_a_text_the_first_token_has_what_the_others_leave(upstream: Any) -> None:
    for request in (
        completion("The sky is", sampling=ONE),
        completion("The sky is", sampling=ONE, echo=True),
    ):
        echo, *content = await ask(upstream, of_completion(), request)
        assert [(t.id, t.text) for t in echo.tokens] == [(1, "The"), (2, " sky"), (3, " is")]
        assert "echo" not in upstream.bodies[-1]
        assert "".join(delta.text for delta in content) == " blue"
        assert not any(t.id for delta in content for t in delta.tokens), "the caller wants no ids"


async def test_an_answer_that_begins_like_the_prompt_is_no_echo(upstream: Any) -> None:
    request = completion("The sky is", sampling=ONE, echo=True)
    echo, *content = await ask(upstream, of_completion(text="The sky is"), request)
    assert (echo.text, "".join(delta.text for delta in content)) == ("The sky is", "The sky is")


async def test_an_echo_with_nothing_generated_has_the_prompt_alone(upstream: Any) -> None:
    for text in ("The sky is", ""):  # vLLM leaves the text out with token ids
        request = completion("The sky is", sampling=replace(ONE, max_tokens=0), echo=True)
        deltas = await ask(upstream, of_completion(text=text), request)
        assert upstream.bodies[-1]["echo"] is True
        assert [delta.text for delta in deltas if delta.text] == ["The sky is"]
        assert deltas[-1].finish_reason == "length"


async def test_tokens_that_contradict_the_text_move_as_one_piece(upstream: Any) -> None:  # contract 3.11
    echo, *_ = await ask(upstream, of_completion(), completion("Another text", sampling=ONE))
    assert [t.text for t in echo.tokens] == ["", "", "Another text"]


async def test_without_ids_the_first_of_an_entry_is_the_prompts(upstream: Any) -> None:
    echo, *_ = await ask(upstream, whole(prompt_token_ids=None), chat(sampling=ONE))
    assert [t.id for t in echo.tokens] == [None, 2, 3]


async def test_every_prompt_and_output_has_its_own(upstream: Any) -> None:
    (choice,) = of_completion()["choices"]
    answer = {"choices": [choice | {"index": i} for i in range(4)], "usage": USAGE}
    request = completion("The sky is", (1, 2, 3), sampling=replace(ONE, n=2))
    deltas = await ask(upstream, answer, request)
    echoes = {delta.index: delta.text for delta in deltas if delta.channel == "echo"}
    assert echoes == {0: "The sky is", 1: "The sky is", 2: " sky is", 3: " sky is"}


async def test_the_outputs_of_a_chat_share_the_tokens_of_its_prompt(upstream: Any) -> None:
    (choice,) = whole()["choices"]
    answer = whole(choices=[choice | {"index": i} for i in range(3)])
    deltas = await ask(upstream, answer, chat(sampling=replace(ONE, n=3)))
    first, *others = [delta.tokens for delta in deltas if delta.channel == "echo"]
    assert len(others) == 2
    assert all(one is like for tokens in others for one, like in zip(tokens, first, strict=True))


@pytest.mark.parametrize(
    ("answer", "request_", "param"),
    [
        (whole(prompt_logprobs=None), chat(sampling=ONE), "prompt_logprobs"),
        (whole(), completion((1, 2, 3), sampling=ONE, echo=True), "echo"),
    ],
)
async def test_what_cannot_be_given_is_refused(
    upstream: Any, answer: dict[str, Any], request_: GenerationRequest, param: str
) -> None:
    with pytest.raises(RequestError) as refused:
        await ask(upstream, answer, request_)
    assert refused.value.param == param


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt_logprobs": [None, {"2": told(" sky")}]},
        {"prompt_logprobs": [None, {"9": told(" sky")}, {"3": told(" is")}]},
        {"prompt_logprobs": [None, {"2": told(" sky", "much")}, {"3": told(" is")}]},
        {"prompt_logprobs": [None, {"2": told(" sky"), "x": told("")}, {"3": told(" is")}]},
        {"prompt_logprobs": [None, {"2": told(" sky"), "9" * 50: told("")}, {"3": told(" is")}]},
        {"prompt_logprobs": [None, {"2": " sky"}, {"3": told(" is")}]},
        {"prompt_logprobs": {"2": told(" sky")}},
        {"prompt_logprobs": 7},
        {"prompt_token_ids": [1, 2, "3"]},
        {"choices": None},
        {"choices": [{"index": 0, "message": {"content": "cut"}, "finish_reason": "error"}]},
        {"error": {"message": "no memory", "code": 500}},
    ],
)
async def test_an_answer_that_makes_no_sense_is_the_upstreams_fault(
    upstream: Any, fields: dict[str, Any]
) -> None:
    with pytest.raises(EngineError) as failed:
        await ask(upstream, whole(**fields), chat(sampling=ONE))
    assert failed.value.status == 502


async def test_others_get_their_turn_while_an_answer_is_read(
    upstream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, goes_on = threading.Event(), threading.Event()

    def feed(self: WholeTranslator, chunk: Mapping[str, Any], data: bytes | None) -> list[Delta]:
        reads.set()
        assert goes_on.wait(300), "the event loop waits for this answer"
        return feed_at_once(self, chunk, data)

    feed_at_once = WholeTranslator.feed
    monkeypatch.setattr(WholeTranslator, "feed", feed)
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(ask(upstream, whole(), chat(sampling=ONE)))
        assert await asyncio.to_thread(reads.wait, WAIT_LIMIT)
        goes_on.set()
    assert [delta.channel for delta in asked.result()] == ["echo", "content"]


async def test_odd_numbers_and_texts_are_left_out(upstream: Any) -> None:
    entries = [None, {"2": told(None, -1e999, "first")}, {"3": told("\ufffd", 0, 0)}]
    echo, *_ = await ask(upstream, whole(prompt_logprobs=entries), chat(sampling=ONE))
    _, second, third = echo.tokens
    assert (second.text, second.raw, second.logprob, second.rank) == ("", b"", -9999.0, None)
    assert (third.text, third.rank) == ("\ufffd", None)
