"""What a client gets of a request whose hook fails (contract 4)."""

import asyncio
from typing import Any

import pytest

from engine.protocol import Channel, EngineError
from engine.upstream.echo import EchoEngine
from hooks.loading.loader import HookSpec
from tests.contract.case import SECRET, Case, end, every_channel, everywhere, guard, said, well
from tests.contract.test_prompts import FIELDS

WAYS: dict[str, dict[str, Any]] = {"Raises": {}, "Hangs": {}, "Nonsense": {"answer": "none"}}
every_way = pytest.mark.parametrize("way", WAYS)


def failing(way: str, word: str) -> HookSpec:
    return guard(way, word=word, **WAYS[way])


@every_channel()
@every_way
async def test_before_the_first_byte_a_failure_has_a_status(case: Case, channel: Channel, way: str) -> None:
    """Contract 4.1, 4.2."""
    case.withholds(*SECRET, "more", "I saw")
    first = well(channel)[0].text
    answer = await case.answer(well(channel), failing(way, first), hook_timeout=0.05)
    assert answer.error is not None
    assert (answer.status, answer.error.kind) == (500, case.endpoint.guardrail_error)
    assert answer.error.message == "A guardrail failed, so the request was ended."
    assert b"Error at" not in answer.raw
    assert b"ValueError" not in answer.raw
    assert (case.engine.running, case.engine.aborted) == (0, 1)


@every_channel()
@every_way
async def test_after_the_first_byte_a_failure_is_one_event(case: Case, channel: Channel, way: str) -> None:
    """Contract 4.1, 4.2: `Case.read` wants one error event at most, and `[DONE]` where the API has it."""
    case.withholds(*SECRET, "more", "I saw")
    answer = await case.answer(well(channel), failing(way, "zebra7"), hook_timeout=0.05)
    assert answer.error is not None
    assert answer.error.kind == case.endpoint.guardrail_error
    has_begun = case.streams and channel != "tool_call"  # contract 3.20: of a call, nothing has left
    assert answer.status == (200 if has_begun else 500)
    assert answer.only.said(channel) == (case.ended(channel, "well ") if has_begun else "")
    assert answer.only.finish is None
    assert b"ValueError" not in answer.raw
    assert (case.engine.running, case.engine.aborted) == (0, 1)


@everywhere()
@pytest.mark.parametrize("word", ["well ", "zebra7"])
async def test_a_prompt_too_long_for_a_hook_is_told_to_the_client(case: Case, word: str) -> None:
    """Contract 4.4."""
    case.withholds(*SECRET, "more", "I saw")
    answer = await case.answer(well("content"), guard("CannotRead", word=word))
    has_begun = case.streams and word != "well "
    assert answer.error is not None
    assert answer.status == (200 if has_begun else 400)
    assert answer.error.kind == "invalid_request_error"
    assert answer.error.message.endswith("A guardrail of this server cannot read a prompt of this length.")
    if case.endpoint.can("error_code"):
        code, param = answer.error.code, answer.error.param
        assert (code, param) == ("context_length_exceeded", FIELDS[case.endpoint.name])
    assert answer.only.content == ("well " if has_begun else "")
    assert answer.only.finish is None
    assert (case.engine.running, case.engine.aborted) == (0, 1)


@everywhere()
async def test_a_failing_request_does_not_affect_others(case: Case) -> None:  # contract 4.1
    client = await case.start(EchoEngine(), guard("Raises", word="zebra7"))
    prompts = ["one two zebra7 three" if i == 5 else f"one two {i}" for i in range(12)]
    answers = await asyncio.gather(*(case.ask(client, prompt) for prompt in prompts))
    for prompt, answer in zip(prompts, answers, strict=True):
        assert (answer.error is None) == ("zebra7" not in prompt)
        if answer.error is None:
            assert (answer.only.content, answer.only.finish) == (prompt, "stop")


@everywhere("outputs")
async def test_a_failure_ends_the_siblings_too(case: Case) -> None:  # contract 4.1
    first, second = well("content"), [*said("content", "a", "b", "c", "d", index=1), end(index=1)]
    script = [delta for pair in zip(first, second, strict=True) for delta in pair]
    case.withholds(*SECRET, "more")
    answer = await case.answer(script, guard("Raises", word="zebra7"), n=2)
    assert answer.error is not None
    assert [one.content for one in answer.outputs] == (["well ", "ab"] if case.streams else [])
    assert [one.finish for one in answer.outputs] == ([None, None] if case.streams else [])


@everywhere()
async def test_an_engine_that_fails_in_the_stream_is_told_as_a_failure_of_a_hook_is(case: Case) -> None:
    """Contract 4.2, 2.6: what was held when the engine failed is never delivered."""
    case.withholds("zeb")
    script = [*said("content", "well ", "zeb"), EngineError("It broke.")]
    answer = await case.answer(script, guard("Redacts", word="zebra7"))
    assert answer.error is not None
    assert answer.error.message == "It broke."
    assert answer.only.content == ("well " if case.streams else "")
