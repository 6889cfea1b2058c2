"""A lookup belongs to one sequence. The draft model pauses for a sequence while its guesses are wrong."""

from engine.protocol import SamplingParams
from engine.sampling.acceptance import FIRST_PAUSE, LONGEST_PAUSE, Acceptance
from engine.sampling.logits_processors import TokenIds
from engine.sampling.sampling_state import SamplingState
from engine.sampling.speculation import Speculation


def state_of(*token_ids: int) -> SamplingState:
    return SamplingState("r", SamplingParams(), TokenIds(list(token_ids), 1), frozenset())


def test_a_lookup_keeps_to_its_limit() -> None:
    speculation, state = Speculation(), state_of(1, 2, 3, 4, 5, 6, 1, 2)
    assert [list(speculation.look_up(state, num)) for num in (9, 2)] == [[3, 4, 5, 6, 1, 2], [3, 4]]


def test_a_lookup_is_made_once() -> None:
    speculation, state = Speculation(), state_of(1, 2, 3)
    speculation.look_up(state, 1)
    lookup = state.lookup
    speculation.look_up(state, 1)
    assert lookup is state.lookup is not None


def test_nothing_is_looked_up_if_only_the_draft_model_guesses() -> None:
    speculation, state = Speculation(has_lookup=False), state_of(1, 2, 3, 1, 2)
    assert not speculation.look_up(state, 4)
    assert state.lookup is None


def pauses(accepted: int, num_drafts: int, num_guesses: int = 4) -> list[int]:
    """The tokens between drafts of which `accepted` tokens come true, where there was a pause."""
    acceptance, num_tokens, lengths = Acceptance(), 10, []
    for _ in range(num_drafts):
        acceptance.guess(num_tokens, num_guesses)
        num_tokens += 1 + accepted
        begin = num_tokens
        while acceptance.is_paused(num_tokens):
            num_tokens += 1
        lengths += [num_tokens - begin] if num_tokens > begin else []
    return lengths


def test_ever_longer_pauses_follow_guesses_that_stay_wrong() -> None:
    lengths = pauses(accepted=0, num_drafts=20)
    assert lengths[:3] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert set(lengths[5:]) == {LONGEST_PAUSE}


def test_no_pause_follows_guesses_that_come_true() -> None:
    assert not pauses(accepted=4, num_drafts=20)
    assert not pauses(accepted=1, num_drafts=20)


def test_the_draft_model_is_asked_again_when_it_guesses_well_after_a_pause() -> None:
    acceptance, num_tokens = Acceptance(), 0
    for accepted in (0, 0, 0, 0, 4):
        acceptance.guess(num_tokens, 4)
        num_tokens += 1 + accepted
        while acceptance.is_paused(num_tokens):
            num_tokens += 1
    assert not acceptance.is_paused(num_tokens)
    assert acceptance._pause == FIRST_PAUSE


def test_a_rewind_forgets_what_came_true() -> None:
    speculation, state = Speculation(), state_of(1, 2, 3)
    speculation.expect(state, 4)
    assert state.acceptance is not None
    state.rewind(0, ())
    assert speculation.asks_model(state)
    assert state.acceptance is None
