"""Tool calls and reasoning that a parser finds, as clients and as hooks see them."""

from typing import Any

import orjson
import pytest
from openai import AsyncOpenAI

from engine.protocol import Delta, GenerationRequest, ModelInfo, Token, Usage
from engine.streams.recording import Recording, TimedDelta
from engine.upstream.openai.engine import OpenAIEngine
from engine.upstream.replay import ReplayEngine
from hooks import Chunk, Verdict, emit, hold, redact, suppress, terminate
from tests.helpers import Script, ScriptedEngine, make_token
from tests.proxy.conftest import CHAT, Client, Serve

PATH = "/v1/chat/completions"
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "time", "parameters": {"type": "object"}}},
]
ASKS = {**CHAT, "tools": TOOLS, "logprobs": True, "return_token_ids": True}
QWEN = {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"}
PIECES = [
    *("<think>", "Rain", "?", "</think>", "\n\n", "Let me", " look.", "\n"),
    *(
        "<tool_call>",
        "\n",
        '{"name": "',
        "weather",
        '", "arguments": ',
        "{",
        '"city": "',
        "Zür",
        "ich",
        '"',
        "}",
        "}\n",
    ),
    *("</tool_call>", "\n", "<tool_call>", '{"name": "time", "arguments": ', "{}", "}", "</tool_call>"),
]
ARGUMENTS = '{"city": "Zürich"}'
SHOWN = {1, 2, 4, 5, 6, 7, *range(13, 19), 24}
"""The places of the pieces that hooks are shown as text. The parsers consume the others."""


def answer(request: Any) -> list[Delta]:
    tokens = [make_token(piece, i) for i, piece in enumerate(PIECES)]
    end = Token(len(PIECES), "", b"<|im_end|>", -0.25)
    return [
        *(Delta(text=t.text, tokens=(t,), usage=Usage(7, i)) for i, t in enumerate(tokens, 1)),
        Delta(tokens=(end,), finish_reason="stop", usage=Usage(7, len(PIECES) + 1)),
    ]


class ModelEngine(ScriptedEngine):
    """An engine that yields the model's unparsed text."""

    info = ModelInfo(max_model_len=1024, parses_tool_calls=False)


def let_through(chunk: Chunk) -> Verdict:
    return emit(chunk.pending)


def folded(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """The chunks of a stream as one choice, folded as a client does it."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    ids: list[int] = []
    logprobs: list[Any] = []
    for choice in (chunk["choices"][0] for chunk in chunks):
        for field in ("content", "reasoning_content"):
            message[field] += choice["delta"].get(field) or ""
        for call in choice["delta"].get("tool_calls", ()):
            if call["index"] == len(message["tool_calls"]):
                assert call["id"].startswith("call-")
                assert call["type"] == "function"
                message["tool_calls"].append({"name": call["function"]["name"], "arguments": ""})
            message["tool_calls"][call["index"]]["arguments"] += call["function"]["arguments"]
        ids += choice["token_ids"]
        logprobs += (choice["logprobs"] or {"content": []})["content"]
    return {
        "message": message,
        "token_ids": ids,
        "logprobs": logprobs,
        "finish": chunks[-1]["choices"][0]["finish_reason"],
    }


def whole(body: dict[str, Any]) -> dict[str, Any]:
    (choice,) = body["choices"]
    message = choice["message"]
    return {
        "message": {
            "content": message["content"] or "",
            "reasoning_content": message.get("reasoning_content", ""),
            "tool_calls": [call["function"] for call in message.get("tool_calls", [])],
        },
        "token_ids": choice["token_ids"],
        "logprobs": choice["logprobs"]["content"],
        "finish": choice["finish_reason"],
    }


EXPECTED = {
    "content": "\n\nLet me look.\n",
    "reasoning_content": "Rain?",
    "tool_calls": [{"name": "weather", "arguments": ARGUMENTS}, {"name": "time", "arguments": "{}"}],
}


@pytest.mark.parametrize("hooks", [(), (Script(let_through),), (Script(let_through), Script(let_through))])
async def test_reasoning_content_and_calls_have_fields_of_their_own(
    serve: Serve, hooks: tuple[Script, ...]
) -> None:
    client = await serve(ModelEngine(answer), *hooks, **QWEN)
    status, body, _ = await client.post(PATH, ASKS)
    assert status == 200
    answered = whole(body)
    assert answered["message"] == EXPECTED
    assert answered["finish"] == "tool_calls"
    assert answered["token_ids"] == list(range(len(PIECES) + 1)), "every token, in order, under an observer"
    told = [i in SHOWN or not hooks for i in answered["token_ids"]]  # contract 8.4
    names = [piece if told[i] else f"token_id:{i}" for i, piece in enumerate([*PIECES, "<|im_end|>"])]
    assert [entry["token"] for entry in answered["logprobs"]] == names
    assert body["usage"]["completion_tokens"] == len(PIECES) + 1
    assert body["usage"]["completion_tokens_details"] == {"reasoning_tokens": 3}
    stream = await client.stream(PATH, ASKS)
    assert folded(stream.chunks) == answered


@pytest.mark.parametrize("hooks", [(), (Script(let_through),)])
async def test_reasoning_can_be_left_out(serve: Serve, hooks: tuple[Script, ...]) -> None:
    """Its tokens too. Hooks see it, and it is counted."""
    client = await serve(ModelEngine(answer), *hooks, **QWEN)
    asked = {**ASKS, "include_reasoning": False}
    status, body, headers = await client.post(PATH, asked)
    assert status == 200
    assert "include_reasoning" not in headers.get("X-Weir-Ignored-Fields", "")
    answered = whole(body)
    assert answered["message"] == {**EXPECTED, "reasoning_content": ""}
    thought = {PIECES.index("Rain"), PIECES.index("?")}
    assert not thought & set(answered["token_ids"])
    assert "Rain" not in str(answered["logprobs"])
    assert body["usage"]["completion_tokens_details"] == {"reasoning_tokens": 3}
    stream = await client.stream(PATH, asked)
    assert folded(stream.chunks) == answered
    for hook in hooks:
        assert "Rain?" in "".join(chunk.text_diff for chunk in hook.chunks if chunk.channel == "reasoning")


async def test_a_guard_ends_an_answer_by_reasoning_that_is_left_out(serve: Serve) -> None:
    def guard(chunk: Chunk) -> Verdict:
        return terminate("rain") if "Rain" in chunk.text else emit(chunk.pending)

    client = await serve(ModelEngine(answer), Script(guard), **QWEN)
    asked = {**CHAT, "include_reasoning": False}
    _, body, _ = await client.post(PATH, asked)
    (choice,) = body["choices"]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("content_filter", "rain")
    assert choice["message"] == {"role": "assistant", "content": "", "refusal": None}
    (chunk,) = (await client.stream(PATH, asked)).chunks
    assert chunk["choices"][0]["finish_reason"] == "content_filter"


async def test_the_sdk_reads_the_calls(serve: Serve) -> None:
    client = await serve(ModelEngine(answer), Script(let_through), **QWEN)
    async with AsyncOpenAI(base_url=f"{client.url}/v1", api_key="none") as sdk:
        asked: Any = {"model": "m", "messages": CHAT["messages"], "tools": TOOLS}
        done = await sdk.chat.completions.create(**asked)
        calls: Any = done.choices[0].message.tool_calls
        assert [(c.function.name, c.function.arguments) for c in calls] == [
            ("weather", ARGUMENTS),
            ("time", "{}"),
        ]
        async with sdk.chat.completions.stream(**asked) as stream:
            streamed: Any = (await stream.get_final_completion()).choices[0].message.tool_calls
        assert [c.function.arguments for c in streamed] == [ARGUMENTS, "{}"]


async def test_hooks_see_clean_channels_and_each_call_as_a_stream_of_its_own(serve: Serve) -> None:
    hook = Script(let_through)
    client = await serve(ModelEngine(answer), hook, **QWEN)
    hook.chunks.clear()  # remove the chunks of the self-test
    await client.post(PATH, ASKS)
    streams: dict[Any, str] = {}
    for chunk in hook.chunks:
        key = chunk.channel, chunk.tool_name
        streams[key] = streams.get(key, "") + chunk.text_diff
    assert streams == {
        ("reasoning", None): "Rain?",
        ("content", None): "\n\nLet me look.\n",
        ("tool_call", "weather"): ARGUMENTS,
        ("tool_call", "time"): "{}",
    }
    assert len(hook.finals) == 4


async def test_a_guard_withholds_only_one_call(serve: Serve) -> None:
    def guard(chunk: Chunk) -> Verdict:
        return suppress() if chunk.tool_name == "weather" else emit(chunk.pending)

    client = await serve(ModelEngine(answer), Script(guard), **QWEN)
    _, body, _ = await client.post(PATH, ASKS)
    answered = whole(body)
    assert answered["message"] == {**EXPECTED, "tool_calls": EXPECTED["tool_calls"][1:]}
    stream = await client.stream(PATH, ASKS)
    assert folded(stream.chunks) == answered
    first, last = PIECES.index("<tool_call>"), PIECES.index("}\n")
    withheld = set(range(first, last))
    assert not withheld & set(answered["token_ids"])
    for text in ("weather", "Zür", "ich"):
        assert text not in str(answered)
        assert text not in str(stream.events)


async def test_a_guard_withholds_only_reasoning(serve: Serve) -> None:
    def guard(chunk: Chunk) -> Verdict:
        return suppress() if chunk.channel == "reasoning" else emit(chunk.pending)

    client = await serve(ModelEngine(answer), Script(guard), **QWEN)
    _, body, _ = await client.post(PATH, ASKS)
    answered = whole(body)
    assert answered["message"] == {**EXPECTED, "reasoning_content": ""}
    assert answered["token_ids"] == list(range(PIECES.index("</think>"), len(PIECES) + 1))
    assert "Rain" not in str(body)
    assert folded((await client.stream(PATH, ASKS)).chunks) == answered


async def test_arguments_can_be_redacted_and_held(serve: Serve) -> None:
    def guard(chunk: Chunk) -> Verdict:
        text = chunk.pending
        if chunk.tool_name != "weather":
            return emit(text)
        if not chunk.is_final:
            return hold()
        begin = text.index("Zürich")
        return redact([(begin, begin + 6, "***")])

    client = await serve(ModelEngine(answer), Script(guard), **QWEN)
    _, body, _ = await client.post(PATH, ASKS)
    answered = whole(body)
    assert answered["message"]["tool_calls"][0]["arguments"] == '{"city": "***"}'
    assert not {PIECES.index("Zür"), PIECES.index("ich")} & set(answered["token_ids"])
    assert answered["token_ids"] == sorted(answered["token_ids"])
    assert folded((await client.stream(PATH, ASKS)).chunks) == answered


async def test_a_terminate_in_a_call_stops_the_engine(serve: Serve) -> None:
    def guard(chunk: Chunk) -> Verdict:
        return terminate("no_weather") if chunk.tool_name else emit(chunk.pending)

    engine = ModelEngine(answer)
    client = await serve(engine, Script(guard), **QWEN)
    _, body, _ = await client.post(PATH, ASKS)
    (choice,) = body["choices"]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("content_filter", "no_weather")
    assert "tool_calls" not in choice["message"]
    assert engine.aborted == 1


async def test_only_the_first_call_is_given_without_parallel_calls(serve: Serve) -> None:
    client = await serve(ModelEngine(answer), **QWEN)
    _, body, _ = await client.post(PATH, {**ASKS, "parallel_tool_calls": False})
    answered = whole(body)
    assert answered["message"]["tool_calls"] == EXPECTED["tool_calls"][:1]
    assert '"time"' not in str(body)
    stream = await client.stream(PATH, {**ASKS, "parallel_tool_calls": False})
    assert folded(stream.chunks) == answered


async def test_without_tools_the_models_text_is_content(serve: Serve) -> None:
    client = await serve(ModelEngine(answer), **QWEN)
    for asked in (CHAT, {**ASKS, "tool_choice": "none"}):
        _, body, _ = await client.post(PATH, asked)
        message = body["choices"][0]["message"]
        assert message["reasoning_content"] == "Rain?"
        assert message["content"] == "".join(PIECES[4:])
        assert body["choices"][0]["finish_reason"] == "stop"


async def test_completions_are_not_parsed(serve: Serve) -> None:
    client = await serve(ModelEngine(answer), **QWEN)
    _, body, _ = await client.post("/v1/completions", {"model": "m", "prompt": "Hi"})
    assert body["choices"][0]["text"] == "".join(PIECES)


async def test_tools_need_a_parser_if_the_engine_has_none(serve: Serve) -> None:
    client = await serve(ModelEngine(answer), reasoning_parser="qwen3")
    status, body, _ = await client.post(PATH, ASKS)
    assert (status, body["error"]["param"]) == (400, "tools")
    assert "--tool-call-parser" in body["error"]["message"]
    assert (await client.post(PATH, {**ASKS, "tool_choice": "none"}))[0] == 200


class TemplateAlone:
    """A tokenizer of which the chat template is known."""

    def __init__(self, template: str) -> None:
        self.chat_template = template

    def decode(self, ids: object) -> str:
        return ""


def engine_with(template: str) -> ModelEngine:
    engine = ModelEngine(answer)
    engine.tokenizer = TemplateAlone(template)  # type: ignore[assignment]
    return engine


async def test_a_request_with_tools_learns_which_parser_the_template_suggests(serve: Serve) -> None:
    client = await serve(engine_with("<tool_call>{{ name }}</tool_call>"))
    status, body, _ = await client.post(PATH, ASKS)
    assert status == 400
    assert "The model's chat template suggests 'hermes'." in body["error"]["message"]


async def test_auto_is_the_parser_that_the_template_suggests(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "weir.proxy")
    settings = {**QWEN, "tool_call_parser": "auto"}
    client = await serve(engine_with("<tool_call>{{ name }}</tool_call>"), **settings)
    assert "parser of tool calls 'hermes': its chat template has <tool_call>" in caplog.text
    _, body, _ = await client.post(PATH, ASKS)
    assert whole(body)["message"] == EXPECTED


@pytest.mark.parametrize(
    ("template", "reason"), [("{{ messages }}", "shows none"), ("", "is not known here")]
)
async def test_auto_is_no_parser_if_the_template_shows_none(
    template: str, reason: str, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**QWEN, "tool_call_parser": "auto"}
    client = await serve(engine_with(template), **settings)
    assert reason in caplog.text
    assert (await client.post(PATH, ASKS))[0] == 400
    _, body, _ = await client.post(PATH, CHAT)
    assert body["choices"][0]["message"]["reasoning_content"] == "Rain?"


async def test_each_output_is_parsed_by_itself(serve: Serve) -> None:
    def two(request: GenerationRequest) -> list[Delta]:
        first = answer(request)
        second = [
            Delta(index=1, text="</think>Hel"),
            Delta(index=1, text="lo"),
            Delta(index=1, finish_reason="stop"),
        ]
        return [second[0], *first[:9], second[1], *first[9:], second[2]]

    client = await serve(ModelEngine(two), Script(let_through), **QWEN)
    _, body, _ = await client.post(PATH, {**CHAT, "tools": TOOLS, "n": 2})
    calls, hello = body["choices"]
    assert (calls["finish_reason"], len(calls["message"]["tool_calls"])) == ("tool_calls", 2)
    assert (hello["finish_reason"], hello["message"]["content"]) == ("stop", "Hello")


async def in_front_of(serve: Serve, back: Client, *hooks: Any, **settings: Any) -> Client:
    return await serve(OpenAIEngine(back.url), *hooks, names=[], **settings)


async def test_the_answer_of_an_upstream_without_parsers_is_parsed_here(serve: Serve) -> None:
    back = ScriptedEngine(answer)
    front = await in_front_of(serve, await serve(back), Script(let_through), **QWEN)
    _, body, _ = await front.post(PATH, ASKS)
    answered = whole(body)
    assert answered["message"] == EXPECTED
    assert answered["finish"] == "tool_calls"
    assert answered["token_ids"] == sorted(answered["token_ids"])
    assert list(back.requests[0].tools) == TOOLS


async def test_the_answer_of_an_upstream_with_parsers_is_passed_on(serve: Serve) -> None:
    engine = ModelEngine(answer)
    back = await serve(engine, **QWEN)
    front = await in_front_of(serve, back, Script(let_through), **QWEN)
    for choice in ("auto", {"type": "function", "function": {"name": "time"}}):
        _, body, _ = await front.post(PATH, {**ASKS, "tool_choice": choice, "parallel_tool_calls": True})
        assert whole(body)["message"] == EXPECTED
        assert whole(body)["finish"] == "tool_calls"
        assert engine.requests[-1].tool_choice == choice


async def test_a_recorded_stream_is_parsed(serve: Serve) -> None:
    request = GenerationRequest(request_id="r", model="m", endpoint="chat", messages=tuple(CHAT["messages"]))  # type: ignore[arg-type]
    recording = Recording(request, tuple(TimedDelta(0.0, delta) for delta in answer(request)))
    client = await serve(ReplayEngine([recording]), **QWEN)
    assert folded((await client.stream(PATH, ASKS)).chunks)["message"] == EXPECTED


async def test_arguments_are_valid_json(serve: Serve) -> None:
    client = await serve(ModelEngine(answer), **QWEN)
    _, body, _ = await client.post(PATH, ASKS)
    for call in body["choices"][0]["message"]["tool_calls"]:
        assert isinstance(orjson.loads(call["function"]["arguments"]), dict)
