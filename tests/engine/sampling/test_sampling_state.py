"""The state of sampling follows a rewind, and says which logprobs are needed."""

from typing import Any

import pytest

from engine.protocol import SamplingParams
from engine.sampling.logits_processors import TokenIds
from engine.sampling.prompt_lookup import PromptLookup
from engine.sampling.sampling_state import CountedSequence, SamplingState


def state_of(**params: Any) -> SamplingState:
    return SamplingState("r", SamplingParams(**params), TokenIds([5, 6, 7, 8], 2), frozenset())


def test_bans_at_a_place_add_up_until_a_rewind_goes_further_back() -> None:
    state = state_of()
    state.rewind(5, [1])
    state.rewind(5, [2])
    assert state.banned == {5: frozenset({1, 2})}
    state.rewind(3, [4])
    assert state.banned == {3: frozenset({4})}
    assert state.num_rewinds == 3


def test_a_rewind_drops_the_states_made_from_tokens() -> None:
    state = state_of()
    state.lookup = PromptLookup(2, 4)
    state.counted = CountedSequence(0, [])
    state.rewind(0, [])
    assert (state.lookup, state.counted) == (None, None)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, None),
        ({"logprobs": 0}, 0),
        ({"logprobs": 3}, 3),
        ({"best_of": 2}, 0),
        ({"best_of": 2, "logprobs": 1}, 1),
    ],
)
def test_candidates_need_the_logprobs_of_their_tokens(params: dict[str, Any], expected: int | None) -> None:
    assert state_of(**params).num_logprobs == expected
