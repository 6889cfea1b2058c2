"""Reasoning, text and calls reach every client in the order of the engine (contract 2.16)."""

import pytest

from hooks.loading.loader import HookSpec
from tests.contract.case import Case, end, everywhere, said
from tests.contract.wire import Choices

GUARDS = [HookSpec("pii"), HookSpec("secrets"), HookSpec("phrases", {"phrases": ["notes of", "answer to"]})]


@everywhere("reasoning", "tool_call")
@pytest.mark.parametrize("num_guards", [1, 3])
async def test_what_a_guard_holds_leaves_before_the_next_channel(case: Case, num_guards: int) -> None:
    script = [
        *said("reasoning", "It ", "is the ", "answer"),
        *said("content", "I read ", "the ", "notes", first_id=200),
        *said("tool_call", "path7", first_id=300),
        end("tool_calls"),
    ]
    answer = await case.answer(script, *GUARDS[:num_guards])
    assert (answer.only.reasoning, answer.only.content) == ("It is the answer", "I read the notes")
    assert [name for name, _ in answer.only.calls] == ["f"]
    if case.streams or not isinstance(case.endpoint, Choices):  # a whole chat has a field for each channel
        places = [answer.raw.index(word) for word in (b"answer", b"notes", b"path7")]
        assert places == sorted(places)


@everywhere("reasoning")
async def test_a_channel_that_comes_again_is_not_split_further(case: Case) -> None:
    script = [
        *said("reasoning", "first", " answer"),
        *said("content", "one", " notes", first_id=200),
        *said("reasoning", "second", " answer", first_id=300),
        *said("content", "two", " notes.", first_id=400),
        end(),
    ]
    answer = await case.answer(script, *GUARDS)
    assert answer.only.reasoning == "first answersecond answer"
    assert answer.only.content == "one notestwo notes."
    if not (case.streams or isinstance(case.endpoint, Choices)):
        texts = (b'"first answer"', b'"one notes"', b'"second answer"', b'"two notes."')
        places = [answer.raw.index(text) for text in texts]
        assert places == sorted(places)
