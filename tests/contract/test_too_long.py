"""A prompt beyond the model's context is refused in the words by which clients know it, whoever finds out."""

from dataclasses import replace
from typing import Any

import pytest

from engine.local.engine import LocalEngine
from engine.protocol.demo import MODEL_DIR
from engine.protocol.options import EngineConfig
from engine.upstream.errors import upstream_error
from tests.contract.case import Case, end, engine_of, everywhere, guard, said, well
from tests.contract.test_prompts import FIELDS
from tests.contract.wire import Answer

LONG = "ab " * 400
LENGTH = "this model's maximum context length is "
"""LiteLLM looks for these words. LangChain looks for the error's code."""

THEIRS = [
    (
        "You passed 5001 input tokens and requested 1 output tokens. However, the model's context length is "
        "only 4096 tokens, resulting in a maximum input length of 4095 tokens.",
        None,
    ),
    ("This model's maximum context length is 4096 tokens. However, your messages have 5001 tokens.", None),
    ("The input (5001 tokens) is longer than the model's context length (4096 tokens).", None),
    ("request (5001 tokens) exceeds the available context size (4096 tokens), try increasing it", None),
    ("prompt is too long: 5,001 tokens > 4,096 maximum", None),
    ("no", "context_length_exceeded"),
]
"""What vLLM, OpenAI, SGLang, llama.cpp, the Messages API and somebody else say."""


def check(case: Case, answer: Answer, limit: int | None = None) -> None:
    """Wants the sentence, with the model's limit if it is known."""
    assert answer.error is not None
    assert (answer.status, answer.error.kind) == (400, "invalid_request_error")
    message = answer.error.message
    if case.endpoint.can("error_code"):
        assert answer.error.code == "context_length_exceeded"
        expected = LENGTH if limit is None else f"{LENGTH}{limit} tokens. however, "
        assert message.lower().startswith(expected)
    else:
        assert message.startswith("prompt is too long: ")
        assert limit is None or str(limit) in message.replace(",", "")


@everywhere()
async def test_a_prompt_that_has_too_many_bytes(case: Case) -> None:
    engine: Any = engine_of([end()])
    engine.info = replace(engine.info, max_model_len=100, max_prompt_bytes=500)
    answer = await case.answer(engine, prompt=LONG)
    check(case, answer, 100)
    assert answer.error is not None
    assert answer.error.param in (FIELDS[case.endpoint.name], None)


@everywhere("prompt_ids")
async def test_a_prompt_that_has_too_many_token_ids(case: Case) -> None:
    engine: Any = engine_of([end()])
    engine.info = replace(engine.info, max_model_len=100, max_prompt_bytes=500)
    check(case, await case.answer(engine, prompt=[1] * 101), 100)


@everywhere()
async def test_a_prompt_that_the_engine_finds_too_long(case: Case) -> None:
    engine = LocalEngine(EngineConfig(model=str(MODEL_DIR), num_threads=1, max_model_len=128))
    check(case, await case.answer(engine, prompt=LONG, tools=[]), 128)


@everywhere()
@pytest.mark.parametrize("hooks", [(), (guard("Ends", word="zebra7"),)], ids=["no hook", "hooks"])
@pytest.mark.parametrize(("message", "code"), THEIRS, ids=[message[:12] for message, _ in THEIRS])
async def test_a_prompt_that_an_upstream_finds_too_long(
    case: Case, message: str, code: str | None, hooks: Any
) -> None:
    refusal = upstream_error(400, {"error": {"message": message, "code": code}})
    check(case, await case.answer([refusal], *hooks), None if code else 4096)


@everywhere()
async def test_a_prompt_that_a_guard_finds_too_long(case: Case) -> None:  # contract 4.4
    check(case, await case.answer(well("content"), guard("CannotRead", word="well ")))


@everywhere()
async def test_another_refusal_of_an_upstream_keeps_its_words(case: Case) -> None:
    refusal = upstream_error(400, {"error": {"message": "no such role", "code": "bad_role"}})
    answer = await case.answer([refusal])
    assert answer.error is not None
    assert answer.error.message == "no such role"
    assert answer.error.code in ("bad_role", None)


@everywhere()
async def test_a_prompt_that_fits_is_answered(case: Case) -> None:
    engine: Any = engine_of([*said("content", "fine"), end()])
    engine.info = replace(engine.info, max_model_len=1000, max_prompt_bytes=5000)
    assert (await case.answer(engine, prompt=LONG)).only.content == "fine"
