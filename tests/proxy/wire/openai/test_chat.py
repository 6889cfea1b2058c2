"""`POST /v1/chat/completions`: the shapes that clients rely on."""

from typing import Any

import pytest

from engine.protocol import Delta, Token, ToolCall, TopLogprob, Usage
from engine.protocol.fields.support import FieldSupport
from hooks.loading.loader import HookSpec
from hooks.pipeline.pipeline import Pipeline
from hooks.workers.pool import WorkerPool
from tests.helpers import ScriptedEngine, make_deltas, make_token, slow
from tests.proxy.conftest import CHAT, Serve

PATH = "/v1/chat/completions"


def hello(request: Any) -> list[Delta]:
    *deltas, last = make_deltas(["Hel", "lo"])
    return [
        *deltas,
        Delta(tokens=(Token(9, "", b"<end>", -0.1),), finish_reason=last.finish_reason, usage=Usage(7, 3, 2)),
    ]


async def test_a_whole_answer_has_every_field(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello))
    status, body, headers = await client.post(PATH, CHAT)
    assert status == 200
    assert body["id"].startswith("chatcmpl-")
    assert headers["X-Request-Id"] == body["id"]
    assert (body["object"], body["model"]) == ("chat.completion", "m")
    assert isinstance(body["created"], int)
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": None,
        }
    ]
    assert body["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


async def test_a_stream_begins_with_the_role_and_ends_with_one_finish_reason(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello))
    stream = await client.stream(PATH, CHAT)
    assert stream.events[-1] == (None, "[DONE]")
    choices = [choice for chunk in stream.chunks for choice in chunk["choices"]]
    assert [c["delta"] for c in choices] == [{"role": "assistant", "content": "Hel"}, {"content": "lo"}, {}]
    assert [c["finish_reason"] for c in choices] == [None, None, "stop"]
    assert all(chunk["object"] == "chat.completion.chunk" for chunk in stream.chunks)
    assert len({chunk["id"] for chunk in stream.chunks}) == 1
    assert all("usage" not in chunk for chunk in stream.chunks)


async def test_usage_is_one_last_chunk_if_requested(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello))
    stream = await client.stream(PATH, {**CHAT, "stream_options": {"include_usage": True}})
    *chunks, last = stream.chunks
    assert (last["choices"], last["usage"]["total_tokens"]) == ([], 10)
    assert all(chunk["usage"] is None for chunk in chunks)


async def test_continuous_usage_is_in_every_chunk(serve: Serve) -> None:
    def counting(request: Any) -> list[Delta]:
        return [
            Delta(text="a", usage=Usage(7, 1)),
            Delta(text="b", usage=Usage(7, 2)),
            Delta(finish_reason="stop", usage=Usage(7, 3)),
        ]

    client = await serve(ScriptedEngine(counting))
    options = {"include_usage": True, "continuous_usage_stats": True}
    stream = await client.stream(PATH, {**CHAT, "stream_options": options})
    assert [chunk["usage"]["completion_tokens"] for chunk in stream.chunks] == [1, 2, 3, 3]


async def test_logprobs_name_the_token_its_bytes_and_its_alternatives(serve: Serve) -> None:
    top = (TopLogprob(1, b"a", -0.1), TopLogprob(2, b"\xf0\x9f", -2.5))
    deltas = [Delta(text="a", tokens=(Token(1, "a", b"a", -0.1, top),)), Delta(finish_reason="stop")]
    client = await serve(ScriptedEngine(lambda r: deltas))
    _, body, _ = await client.post(PATH, {**CHAT, "logprobs": True, "top_logprobs": 2})
    assert body["choices"][0]["logprobs"]["content"] == [
        {
            "token": "a",
            "logprob": -0.1,
            "bytes": [97],
            "top_logprobs": [
                {"token": "a", "logprob": -0.1, "bytes": [97]},
                {"token": "�", "logprob": -2.5, "bytes": [0xF0, 0x9F]},
            ],
        }
    ]


@pytest.mark.parametrize(("path", "logprobs"), [(PATH, True), ("/v1/completions", 0)])
async def test_the_alternatives_are_those_asked_for(serve: Serve, path: str, logprobs: Any) -> None:
    top = tuple(TopLogprob(i, bytes([97 + i]), -1.0 * i) for i in (3, 1, 2))
    deltas = [Delta(text="a", tokens=(Token(0, "a", b"a", -0.1, top),)), Delta(finish_reason="stop")]
    engine = ScriptedEngine(lambda r: deltas)
    client = await serve(engine)
    body = {**CHAT, "prompt": "Hi", "logprob_token_ids": [3, 1, 2]}
    status, refused, _ = await client.post(path, body)
    assert (status, refused["error"]["param"]) == (400, "logprob_token_ids")
    _, answer, _ = await client.post(path, {**body, "logprobs": logprobs})
    assert engine.requests[-1].sampling.logprob_token_ids == (3, 1, 2)
    told = answer["choices"][0]["logprobs"]
    if path == PATH:
        assert [one["token"] for one in told["content"][0]["top_logprobs"]] == ["d", "b", "c"]
    else:
        assert told["top_logprobs"] == [{"d": -3.0, "b": -1.0, "c": -2.0, "a": -0.1}]


RESPOND = {"model": "m", "input": "Hi", "include": ["message.output_text.logprobs"], "top_logprobs": 2}


@pytest.mark.parametrize(
    ("args", "mode", "is_named", "num_workers"),
    [
        ({}, "enforce", True, 0),
        ({"alternatives": "keep"}, "enforce", False, 0),
        ({"channels": ["reasoning"]}, "enforce", False, 0),
        ({}, "shadow", False, 0),
        ({}, "enforce", True, 1),
        ({"alternatives": "keep"}, "enforce", False, 1),
        slow({"channels": ["reasoning"]}, "enforce", False, 1),
        slow({}, "shadow", False, 1),
    ],
    ids=str,
)
async def test_alternatives_that_a_guard_withholds_are_named_in_the_header(
    serve: Serve, args: dict[str, Any], mode: Any, is_named: bool, num_workers: int
) -> None:
    """Each list of them would be empty in silence."""
    top = (TopLogprob(1, b"a", -0.1), TopLogprob(2, b"b", -2.5))
    deltas = [Delta(text="a", tokens=(Token(1, "a", b"a", -0.1, top),)), Delta(finish_reason="stop")]
    spec = HookSpec("pii", args, mode)
    pool: Any = WorkerPool(1, [spec]) if num_workers else await Pipeline.load([spec])
    engine = ScriptedEngine(lambda r: deltas)
    engine.fields = FieldSupport(honoured=frozenset({"logprobs"}))
    client = await serve(engine, pipeline=pool)
    for path, body in ((PATH, {**CHAT, "logprobs": True, "top_logprobs": 2}), ("/v1/responses", RESPOND)):
        _, answer, headers = await client.post(path, body)
        assert (headers.get("X-Weir-Ignored-Fields") == "top_logprobs") is is_named
        stream = await client.stream(path, body)
        assert (stream.headers.get("X-Weir-Ignored-Fields") == "top_logprobs") is is_named
        if path == PATH:
            (token,) = answer["choices"][0]["logprobs"]["content"]
            assert bool(token["top_logprobs"]) is (not is_named)
    _, _, headers = await client.post(PATH, {**CHAT, "logprobs": True})
    assert "X-Weir-Ignored-Fields" not in headers


async def test_logprobs_are_given_only_if_requested(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello))
    _, body, _ = await client.post(PATH, CHAT)
    assert body["choices"][0]["logprobs"] is None
    _, body, _ = await client.post(PATH, {**CHAT, "logprobs": True})
    assert [entry["top_logprobs"] for entry in body["choices"][0]["logprobs"]["content"]] == [[], [], []]


async def test_token_ids_are_aligned_with_logprobs(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello))
    asked = {**CHAT, "return_token_ids": True, "logprobs": True, "return_tokens_as_token_ids": True}
    stream = await client.stream(PATH, asked)
    ids = [i for chunk in stream.chunks for choice in chunk["choices"] for i in choice["token_ids"]]
    names = [
        entry["token"]
        for chunk in stream.chunks
        for choice in chunk["choices"]
        for entry in (choice["logprobs"] or {"content": []})["content"]
    ]
    assert ids == [0, 1, 9]
    assert names == ["token_id:0", "token_id:1", "token_id:9"]


async def test_choices_keep_their_own_text(serve: Serve) -> None:
    def both(request: Any) -> list[Delta]:
        ones, twos = make_deltas(["a", "b"]), make_deltas(["x", "y"], index=1)
        return [delta for pair in zip(ones, twos, strict=True) for delta in pair]

    client = await serve(ScriptedEngine(both))
    stream = await client.stream(PATH, {**CHAT, "n": 2})
    assert (stream.content(0), stream.content(1)) == ("ab", "xy")
    firsts = [next(c for chunk in stream.chunks for c in chunk["choices"] if c["index"] == i) for i in (0, 1)]
    assert [first["delta"]["role"] for first in firsts] == ["assistant", "assistant"]
    _, body, _ = await client.post(PATH, {**CHAT, "n": 2})
    assert [c["message"]["content"] for c in body["choices"]] == ["ab", "xy"]


def calling(request: Any) -> list[Delta]:
    first, second = ToolCall(3, "look_up", "upstream-id"), ToolCall(7, "tell")
    return [
        Delta(text="hm", channel="reasoning"),
        Delta(text='{"a"', channel="tool_call", tool_call=first),
        Delta(text=":1}", channel="tool_call", tool_call=first),
        Delta(text="{}", channel="tool_call", tool_call=second),
        Delta(finish_reason="tool_calls"),
    ]


async def test_tool_calls_and_reasoning_have_fields_of_their_own(serve: Serve) -> None:
    client = await serve(ScriptedEngine(calling))
    _, body, _ = await client.post(PATH, CHAT)
    message = body["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == (None, "hm")
    assert [call["function"] for call in message["tool_calls"]] == [
        {"name": "look_up", "arguments": '{"a":1}'},
        {"name": "tell", "arguments": "{}"},
    ]
    assert all(
        call["id"].startswith("call-") and call["type"] == "function" for call in message["tool_calls"]
    )
    assert body["choices"][0]["finish_reason"] == "tool_calls"


async def test_streamed_tool_calls_carry_dense_indices_and_one_id_each(serve: Serve) -> None:
    client = await serve(ScriptedEngine(calling))
    stream = await client.stream(PATH, CHAT)
    calls = [
        call
        for chunk in stream.chunks
        for choice in chunk["choices"]
        for call in choice["delta"].get("tool_calls", [])
    ]
    assert [call["index"] for call in calls] == [0, 0, 1]
    assert ["id" in call for call in calls] == [True, False, True]
    assert "upstream-id" not in str(stream.events)


async def test_the_fields_of_a_request_reach_the_engine(serve: Serve) -> None:
    engine = ScriptedEngine(hello)
    client = await serve(engine)
    asked = {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        ],
        "max_completion_tokens": 5,
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": -1,
        "min_p": 0.1,
        "seed": 7,
        "stop": "END",
        "logit_bias": {"17": -100},
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.1,
        "min_tokens": 2,
        "ignore_eos": True,
        "stop_token_ids": [3],
        "user": "u",
        "metadata": {"a": "b"},
        "service_tier": "auto",
        "n": None,
    }
    await client.post(PATH, asked)
    request = engine.requests[0]
    assert request.messages == (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    )
    sampling = request.sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p, sampling.top_k) == (5, 0.5, 0.9, 0)
    assert (sampling.stop, sampling.stop_token_ids, sampling.logit_bias) == (("END",), (3,), {17: -100})
    assert (sampling.seed, sampling.n, sampling.min_tokens, sampling.ignore_eos) == (7, 1, 2, True)
    assert (request.user, request.metadata, request.extra) == ("u", {"a": "b"}, {"service_tier": "auto"})


async def test_a_stop_reason_is_given(serve: Serve) -> None:
    deltas = [Delta(text="a"), Delta(finish_reason="stop", stop_reason="END")]
    client = await serve(ScriptedEngine(lambda r: deltas))
    _, body, _ = await client.post(PATH, CHAT)
    assert body["choices"][0]["stop_reason"] == "END"
    stream = await client.stream(PATH, CHAT)
    assert stream.chunks[-1]["choices"][0]["stop_reason"] == "END"


@pytest.mark.parametrize("text", ["Grüße 🎉 你好", '"quoted" \\ \n\u2028'])
async def test_any_text_reaches_the_client_unchanged(serve: Serve, text: str) -> None:
    deltas = [Delta(text=text, tokens=(make_token(text, 1),)), Delta(finish_reason="stop")]
    client = await serve(ScriptedEngine(lambda r: deltas))
    assert (await client.stream(PATH, CHAT)).content() == text
    _, body, _ = await client.post(PATH, CHAT)
    assert body["choices"][0]["message"]["content"] == text
