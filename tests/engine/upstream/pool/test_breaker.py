"""A replica's circuit breaker, at given times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.upstream.pool.breaker import FAILURES, LONGEST, Breaker


def opened(now: float = 0.0) -> Breaker:
    breaker = Breaker()
    for _ in range(FAILURES):
        breaker.fail(now)
    return breaker


def test_opens_after_three_failures_in_a_row() -> None:
    breaker = Breaker()
    assert [breaker.fail(0.0) for _ in range(3)] == [False, False, True]
    assert (breaker.state(0.9), breaker.allows(0.9)) == ("open", False)


def test_an_answer_between_failures_starts_the_count_anew() -> None:
    breaker = Breaker()
    for _ in range(5):
        breaker.fail(0.0)
        breaker.fail(0.0)
        breaker.succeed(trial=False)
    assert breaker.state(0.0) == "closed"


def test_half_open_lets_one_trial_through() -> None:
    breaker = opened()
    assert (breaker.state(1.0), breaker.allows(1.0)) == ("half_open", True)
    assert breaker.begin()
    assert not breaker.allows(1.0)
    assert not breaker.begin()
    breaker.succeed(trial=True)
    assert (breaker.state(1.0), breaker.allows(1.0), breaker.begin()) == ("closed", True, False)


def test_each_failed_trial_doubles_the_wait_up_to_a_bound() -> None:
    breaker, now, waits = opened(), 1.0, []
    for _ in range(7):
        assert breaker.begin()
        assert breaker.fail(now, trial=True)
        wait = next(wait for wait in range(1, 100) if breaker.allows(now + wait))
        waits.append(wait)
        now += wait
    assert waits == [2, 4, 8, 16, 30, 30, 30]
    assert max(waits) == LONGEST


def test_a_trial_that_says_nothing_leaves_the_place_to_another() -> None:
    breaker = opened()
    assert breaker.begin()
    breaker.leave(trial=True)
    assert (breaker.state(1.0), breaker.allows(1.0)) == ("half_open", True)


def test_requests_that_began_before_it_opened_change_nothing() -> None:
    breaker = opened()
    breaker.succeed(trial=False)
    breaker.leave(trial=False)
    assert not breaker.fail(0.5)
    assert (breaker.state(0.9), breaker.state(1.0)) == ("open", "half_open")


def test_a_sign_of_life_ends_the_wait() -> None:
    breaker = opened()
    breaker.admit_trial(0.25)
    assert breaker.state(0.25) == "half_open"
    closed = Breaker()
    closed.admit_trial(0.25)
    assert closed.state(0.25) == "closed"


@given(st.lists(st.sampled_from(["begin", "succeed", "fail", "leave", "tick"]), max_size=60))
def test_never_more_than_one_trial_and_never_closed_without_an_answer(steps: list[str]) -> None:
    breaker, now, trials, answered = opened(), 0.0, 0, False
    for step in steps:
        if step == "tick":
            now += 1.0
        elif step == "begin" and breaker.allows(now):
            trials += breaker.begin()
        elif step == "succeed":
            breaker.succeed(trial=trials > 0)
            answered, trials = answered or trials > 0, 0
        elif step == "fail":
            breaker.fail(now, trial=trials > 0)
            trials = 0
        elif step == "leave":
            breaker.leave(trial=trials > 0)
            trials = 0
        assert trials <= 1
        assert answered or breaker.state(now) != "closed"


@pytest.mark.parametrize("now", [0.0, 1e9])
def test_time_is_the_callers(now: float) -> None:
    assert opened(now).state(now + 0.5) == "open"
    assert opened(now).state(now + 1.0) == "half_open"
