from contextlib import aclosing
from typing import Any

import pytest

from engine.protocol import Delta, GenerationRequest, RequestError, SamplingParams
from engine.upstream.echo import VOCAB_SIZE, EchoEngine


async def run(*prompts: Any, messages: Any = (), echo: bool = False, **sampling: Any) -> list[Delta]:
    request = GenerationRequest(
        request_id="r",
        model="m",
        endpoint="chat" if messages else "completions",
        prompts=prompts,
        messages=messages,
        echo=echo,
        sampling=SamplingParams(**sampling),
    )
    return [delta async for delta in EchoEngine().generate(request)]


def said(deltas: list[Delta], index: int = 0, channel: str = "content") -> list[str]:
    return [d.text for d in deltas if d.index == index and d.channel == channel and d.text]


async def test_gives_the_prompt_back_word_by_word() -> None:
    deltas = await run("  Hello, the  world\n é")
    assert said(deltas) == [" ", " Hello,", " the", " ", " world", "\n", " é"]
    assert deltas[-1].finish_reason == "stop"
    ids = [token.id for delta in deltas for token in delta.tokens]
    assert all(token_id is not None and 0 <= token_id < VOCAB_SIZE for token_id in ids)
    assert ids[0] == ids[3]
    assert deltas[0].prompt_token_ids == tuple(ids)


async def test_a_very_long_word_comes_in_parts() -> None:
    parts = said(await run("a " + "1" * 250))
    assert parts == ["a", " " + "1" * 100, "1" * 100, "1" * 50]


async def test_gives_the_last_message_of_the_user_or_a_tool_back() -> None:
    parts = [{"type": "text", "text": "a b"}, {"type": "text", "text": " c"}]
    deltas = await run(messages=({"role": "user", "content": "x"}, {"role": "user", "content": parts}))
    assert said(deltas) == ["a", " b", " c"]
    result = {"role": "tool", "tool_call_id": "c", "content": "7"}
    called = ({"role": "user", "content": "x"}, {"role": "assistant"}, result)
    assert said(await run(messages=called)) == ["7"]
    with pytest.raises(RequestError, match="no message of a user"):
        await run(messages=({"role": "system", "content": "x"},))


async def test_gives_ids_back_as_numbers() -> None:
    deltas = await run((5, 17))
    assert said(deltas) == [" 5", " 17"]
    assert [token.id for delta in deltas for token in delta.tokens] == [5, 17]


async def test_ends_at_max_tokens() -> None:
    deltas = await run("a b c", max_tokens=2)
    assert (said(deltas), deltas[-1].finish_reason) == (["a", " b"], "length")
    deltas = await run("a b c", max_tokens=3)
    assert (said(deltas), deltas[-1].finish_reason) == (["a", " b", " c"], "stop")
    deltas = await run("a b c", max_tokens=5, ignore_eos=True)
    assert (said(deltas), deltas[-1].finish_reason) == (["a", " b", " c", "a", " b"], "length")


async def test_an_answer_takes_no_memory_before_it_is_given() -> None:
    request = GenerationRequest(
        request_id="r",
        model="m",
        endpoint="completions",
        prompts=("a b",),
        sampling=SamplingParams(max_tokens=10**15, ignore_eos=True),
    )
    async with aclosing(EchoEngine().generate(request)) as deltas:
        assert [(await anext(deltas)).text for _ in range(3)] == ["a", " b", "a"]


async def test_ends_before_a_stop_string() -> None:
    deltas = await run("a bcd efg", stop=("zzz", "d e"), logprobs=1)
    assert said(deltas) == ["a", " bc"]
    assert deltas[1].tokens[0].id is None
    assert deltas[1].tokens[0].raw == b" bc"
    assert not deltas[1].tokens[0].top
    assert (deltas[-1].finish_reason, deltas[-1].stop_reason) == ("stop", "d e")


async def test_interleaves_outputs() -> None:
    deltas = await run("a b", "c", n=2)
    assert [delta.index for delta in deltas] == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    assert said(deltas, 1) == ["a", " b"]
    assert said(deltas, 2) == ["c"]
    usage = deltas[-1].usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (3, 6)


async def test_echoes_before_it_answers() -> None:
    deltas = await run("a b", echo=True, max_tokens=0, logprobs=0)
    assert said(deltas, channel="echo") == ["a", " b"]
    assert [token.logprob for delta in deltas for token in delta.tokens] == [None, 0.0]
    assert (said(deltas), deltas[-1].finish_reason) == ([], "length")


async def test_answers_an_empty_prompt() -> None:
    deltas = await run("")
    assert [delta.finish_reason for delta in deltas] == ["stop"]


async def test_what_only_a_model_could_be_guided_to_changes_nothing() -> None:
    request = GenerationRequest(
        request_id="r",
        model="m",
        endpoint="completions",
        prompts=("a b",),
        extra={"response_format": {"type": "json_object"}, "guided_regex": "("},
    )
    assert said([delta async for delta in EchoEngine().generate(request)]) == ["a", " b"]
