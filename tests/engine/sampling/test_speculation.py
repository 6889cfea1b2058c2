"""A draft has as many tokens as allowed, and belongs to one sequence."""

from engine.logits_processors import TokenIds
from engine.protocol import SamplingParams
from engine.sampling.sampling_state import SamplingState
from engine.sampling.speculation import Speculation


def state_of(*token_ids: int) -> SamplingState:
    return SamplingState("r", SamplingParams(), TokenIds(list(token_ids), 1), frozenset())


def test_a_draft_keeps_to_both_limits() -> None:
    speculation = Speculation(num_speculative_tokens=3)
    state = state_of(1, 2, 3, 4, 5, 6, 1, 2)
    assert [list(speculation.draft(state, num)) for num in (9, 2, 0, -1)] == [[3, 4, 5], [3, 4], [], []]


def test_a_lookup_is_made_at_the_first_draft() -> None:
    speculation, state = Speculation(num_speculative_tokens=3), state_of(1, 2, 3)
    speculation.draft(state, 0)
    assert state.lookup is None
    speculation.draft(state, 1)
    lookup = state.lookup
    speculation.draft(state, 1)
    assert lookup is state.lookup is not None
