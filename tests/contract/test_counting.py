"""What is counted, and what a count, a reason or an error may say (contract 6)."""

from pathlib import Path
from typing import Any

import pytest

from engine.protocol import Channel, Delta, Token
from tests.contract.case import (
    NUM_PROMPT_TOKENS,
    SECRET,
    Case,
    end,
    every_channel,
    everywhere,
    guard,
    said,
    well,
)


@every_channel()
@pytest.mark.parametrize("name", ["Looks", "Holds", "Redacts", "Rewrites", "Suppresses"])
async def test_usage_counts_what_the_engine_generated(case: Case, channel: Channel, name: str) -> None:
    """Contract 6.1."""
    args = {} if name in ("Looks", "Holds") else {"word": "zebra7"}
    answer = await case.answer(well(channel), guard(name, **args))
    num_tokens = 0 if channel == "echo" else sum(len(delta.tokens) for delta in well(channel))
    assert answer.usage == (NUM_PROMPT_TOKENS, num_tokens)


@everywhere()
async def test_usage_of_a_terminated_answer_counts_up_to_the_cancel(case: Case) -> None:  # contract 6.1
    answer = await case.answer(well("content"), guard("Ends", word="zebra7"))
    assert answer.usage == (NUM_PROMPT_TOKENS, 3)


@everywhere()
@pytest.mark.parametrize("word", [None, "zebra7"])
async def test_hooks_learn_the_tokens_once_at_the_end(case: Case, tmp_path: Path, word: str | None) -> None:
    """Contract 8.18, of an answer that goes to its end and one that a hook ends; also in shadow mode."""
    files = [tmp_path / "enforced", tmp_path / "shadow"]
    hooks = [
        guard("CountsTokens", file=str(file), mode=mode)
        for file, mode in zip(files, ("enforce", "shadow"), strict=True)
    ]
    ends = [] if word is None else [guard("Ends", word=word)]
    answer = await case.answer(well("content"), *hooks, *ends)
    num_tokens = 4 if word is None else 3
    assert answer.usage == (NUM_PROMPT_TOKENS, num_tokens)
    for file in files:
        assert file.read_text() == f"{case.endpoint.name} 1 {NUM_PROMPT_TOKENS} {num_tokens}\n"


@everywhere()
async def test_a_failure_at_the_count_changes_nothing(case: Case, tmp_path: Path) -> None:  # contract 8.18
    case.withholds("quartz")
    answer = await case.answer(well("content"), guard("CountsTokens", file=str(tmp_path / "f"), raises=True))
    assert (answer.error, answer.only.finish) == (None, "stop")


@everywhere()
async def test_usage_can_count_what_was_released(case: Case) -> None:  # contract 6.1
    answer = await case.answer(well("content"), guard("Redacts", word="zebra7"), usage="released")
    assert answer.usage == (NUM_PROMPT_TOKENS, 2)


@every_channel()
@pytest.mark.parametrize("name", ["Redacts", "Rewrites", "Suppresses", "Ends", "Raises"])
async def test_nothing_names_withheld_text(case: Case, channel: Channel, name: str) -> None:
    """Contract 6.2: neither a header, an id, a count nor an error; `Case` looks through all of them."""
    case.withholds(*SECRET)
    last = end("stop", "zebra7")
    answer = await case.answer([*well(channel)[:-1], last], guard(name, word="zebra7"), stop=["zebra7"])
    assert answer.only.reason in (None, "no_secrets")


@everywhere()
async def test_a_stop_string_is_told_only_without_hooks(case: Case) -> None:  # contract 6.3
    script = [*said("content", "well "), end("stop", "zebra7")]
    assert (await case.answer(script, stop=["zebra7"])).ended == ("stop", "zebra7")
    assert (await case.answer(script, guard("Looks"), stop=["zebra7"])).ended == ("stop", None)


@everywhere("stop_token")
@pytest.mark.parametrize(("text", "told"), [("", 9), ("zeb", None)])
async def test_a_stop_tokens_id_is_told_if_it_stands_for_no_text(case: Case, text: str, told: Any) -> None:
    """Contract 6.3."""
    last = Token(9, text, b"</s>", -0.1)
    script = [
        *said("content", "well "),
        Delta(text=text, tokens=(last,), finish_reason="stop", stop_reason=9),
    ]
    answer = await case.answer(script, guard("Looks"), stop_token_ids=[9])
    assert answer.ended == ("stop", told)


@everywhere("logprobs")
async def test_a_token_whose_text_no_hook_saw_is_told_by_its_id(case: Case) -> None:  # contract 8.4
    end_token = Token(9, "", b"<|zebra7|>", -0.1)
    script = [*said("content", "well "), Delta(tokens=(end_token,), finish_reason="stop")]
    case.withholds("zebra7")
    answer = await case.answer(script, guard("Looks"))
    assert answer.only.tokens == ["well ", "token_id:9"]
