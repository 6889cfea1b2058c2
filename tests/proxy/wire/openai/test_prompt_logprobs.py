"""`prompt_logprobs` and the echo of a chat, over HTTP: vLLM's shapes, and what hooks withhold of them."""

from typing import Any, Literal

import pytest

from engine.protocol import Delta, Token, TopLogprob
from hooks import Chunk, emit, redact, suppress
from hooks.builtin.phrases import Phrases
from tests.helpers import Script, ScriptedEngine, make_token
from tests.proxy.conftest import CHAT, COMPLETION, Serve

PATHS = {"/v1/chat/completions": CHAT, "/v1/completions": COMPLETION}
SEA = TopLogprob(5, b" sea", -1.0)
PROMPT = (
    Token(1, "The", b"The"),
    Token(2, " sky", b" sky", -3.0, (SEA, TopLogprob(6, b" sun", -2.0)), rank=9),
    Token(7, "", b"<end>", -0.5, (TopLogprob(7, b"<end>", -0.5),), rank=1),
    Token(3, " is", b" is", -0.25, (TopLogprob(3, b" is", -0.25), SEA), rank=1),
)


def answer(request: Any) -> list[Delta]:
    return [
        Delta(text="The sky is", tokens=PROMPT, channel="echo", prompt_token_ids=(1, 2, 7, 3)),
        Delta(text=" blue", tokens=(make_token(" blue", 4),)),
        Delta(finish_reason="length"),
    ]


def told(path: str, body: dict[str, Any]) -> Any:
    """vLLM: a chat has one prompt, so its logprobs stand beside the choices."""
    return (body if "chat" in path else body["choices"][0])["prompt_logprobs"]


def text_of(body: dict[str, Any]) -> str:
    (choice,) = body["choices"]
    return choice["message"]["content"] if "message" in choice else choice["text"]


@pytest.mark.parametrize("path", PATHS)
async def test_each_prompt_token_has_an_entry_by_id(serve: Serve, path: str) -> None:
    engine = ScriptedEngine(answer)
    client = await serve(engine)
    status, body, _ = await client.post(path, {**PATHS[path], "prompt_logprobs": 1, "return_token_ids": True})
    assert status == 200
    assert engine.requests[0].sampling.prompt_logprobs == 1
    assert told(path, body) == [
        None,
        {
            "2": {"logprob": -3.0, "rank": 9, "decoded_token": " sky"},
            "5": {"logprob": -1.0, "rank": 1, "decoded_token": " sea"},
        },
        {"7": {"logprob": -0.5, "rank": 1, "decoded_token": "<end>"}},
        {"3": {"logprob": -0.25, "rank": 1, "decoded_token": " is"}},
    ]
    assert text_of(body) == " blue", "the prompt is not echoed"
    assert body["choices"][0]["token_ids"] == [4]
    beside = body if "chat" in path else body["choices"][0]
    assert beside["prompt_token_ids"] == [1, 2, 7, 3]


@pytest.mark.parametrize("path", PATHS)
async def test_zero_gives_the_prompts_own_tokens_and_nothing_is_given_unasked(
    serve: Serve, path: str
) -> None:
    client = await serve(ScriptedEngine(answer))
    _, body, _ = await client.post(path, {**PATHS[path], "prompt_logprobs": 0})
    assert [entry and list(entry) for entry in told(path, body)] == [None, ["2"], ["7"], ["3"]]
    _, body, _ = await client.post(path, PATHS[path])
    assert "prompt_logprobs" not in str(body)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("fields", [{"stream": True}, {}])
async def test_what_no_answer_can_have_is_refused(serve: Serve, path: str, fields: dict[str, Any]) -> None:
    client = await serve(ScriptedEngine(answer))
    number = 0 if fields else 21
    status, body, _ = await client.post(path, {**PATHS[path], **fields, "prompt_logprobs": number})
    assert (status, body["error"]["param"]) == (400, "prompt_logprobs")


async def test_a_chat_has_either_an_echo_or_prompt_logprobs(serve: Serve) -> None:
    client = await serve(ScriptedEngine(answer))
    asked = {**CHAT, "echo": True, "prompt_logprobs": 1}
    status, body, _ = await client.post("/v1/chat/completions", asked)
    assert (status, body["error"]["param"]) == (400, "echo")


async def test_an_echoed_prompt_may_have_both(serve: Serve) -> None:
    client = await serve(ScriptedEngine(answer))
    asked = {**COMPLETION, "echo": True, "logprobs": 0, "prompt_logprobs": 2}
    _, body, _ = await client.post("/v1/completions", asked)
    (choice,) = body["choices"]
    assert choice["text"] == "The sky is blue"
    assert choice["logprobs"]["top_logprobs"][1] == {" sky": -3.0}
    assert list(choice["prompt_logprobs"][1]) == ["2", "5", "6"]


@pytest.mark.parametrize("path", PATHS)
async def test_withheld_prompt_text_takes_its_logprobs_with_it(
    serve: Serve, path: str
) -> None:  # contract 5.3
    def no_sky(chunk: Chunk) -> Any:
        at = chunk.pending.find("sky")
        return emit(chunk.pending) if at < 0 else redact([(at, at + 3, "***")])

    hook = Script(no_sky)
    client = await serve(ScriptedEngine(answer), hook)
    _, body, _ = await client.post(path, {**PATHS[path], "prompt_logprobs": 2, "return_token_ids": True})
    assert "".join(c.text_diff for c in hook.chunks if c.channel == "echo") == "The sky is"
    assert "sky" not in str(body)
    assert "prompt_token_ids" not in str(body)
    assert [entry and list(entry) for entry in told(path, body)] == [None, ["7"], ["3", "5"]]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("alternatives", ["withhold", "keep"])
async def test_guards_that_ship_withhold_what_the_model_would_have_said_in_a_prompts_place(
    serve: Serve, path: str, alternatives: Literal["withhold", "keep"]
) -> None:  # contract 3.13
    client = await serve(ScriptedEngine(answer), Phrases(["The sea"], alternatives=alternatives))
    _, body, _ = await client.post(path, {**PATHS[path], "prompt_logprobs": 1})
    _, sky, end, last = told(path, body)
    assert (list(end), list(last)) == (["7"], ["3"])
    assert list(sky) == (["2", "5"] if alternatives == "keep" else ["2"])
    assert ("sea" in str(body)) is (alternatives == "keep")


@pytest.mark.parametrize("path", PATHS)
async def test_a_prompt_token_without_text_is_told_by_its_id(serve: Serve, path: str) -> None:  # contract 8.4
    client = await serve(ScriptedEngine(answer), Script(lambda c: emit(c.pending)))
    _, body, _ = await client.post(path, {**PATHS[path], "prompt_logprobs": 1})
    assert told(path, body)[2] == {"7": {"logprob": -0.5, "rank": 1, "decoded_token": None}}
    assert "<end>" not in str(body)


@pytest.mark.parametrize("path", PATHS)
async def test_a_suppressed_prompt_has_no_logprobs(serve: Serve, path: str) -> None:  # contract 3.2
    hook = Script(lambda c: suppress() if c.channel == "echo" else emit(c.pending))
    client = await serve(ScriptedEngine(answer), hook)
    _, body, _ = await client.post(path, {**PATHS[path], "prompt_logprobs": 1})
    assert (told(path, body), text_of(body)) == (None, " blue")


def blue(request: Any) -> list[Delta]:
    return [Delta(text=" blue", prompt_token_ids=(1, 2)), Delta(finish_reason="stop")]


CONTINUED = {
    "model": "m",
    "messages": [CHAT["messages"][0], {"role": "assistant", "content": "The sky is"}],
    "echo": True,
}


async def test_a_chat_echoes_the_message_that_it_continues(serve: Serve) -> None:  # contract 2.5
    client = await serve(ScriptedEngine(blue))
    _, body, _ = await client.post("/v1/chat/completions", CONTINUED)
    assert text_of(body) == "The sky is blue"
    stream = await client.stream("/v1/chat/completions", CONTINUED)
    assert stream.content() == "The sky is blue"
    assert stream.chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": "The sky is"}


async def test_the_echo_of_a_chat_is_vetted(serve: Serve) -> None:  # contract 5.3
    def no_sky(chunk: Chunk) -> Any:
        return emit(chunk.pending.replace("sky", "***")) if chunk.channel == "echo" else emit(chunk.pending)

    hook = Script(no_sky)
    client = await serve(ScriptedEngine(blue), hook)
    _, body, _ = await client.post("/v1/chat/completions", CONTINUED)
    assert text_of(body) == "The *** is blue"
    stream = await client.stream("/v1/chat/completions", CONTINUED)
    assert stream.content() == "The *** is blue"
    assert [c.text for c in hook.finals if c.channel == "echo"] == ["The sky is"] * 2


async def test_a_chat_gives_the_ids_of_its_prompt_once_beside_the_choices(serve: Serve) -> None:
    client = await serve(ScriptedEngine(blue))
    asked = {**CHAT, "return_token_ids": True}
    _, body, _ = await client.post("/v1/chat/completions", asked)
    assert body["prompt_token_ids"] == [1, 2]
    assert "prompt_token_ids" not in body["choices"][0]
    stream = await client.stream("/v1/chat/completions", asked)
    assert [chunk.get("prompt_token_ids") for chunk in stream.chunks] == [[1, 2], None]
