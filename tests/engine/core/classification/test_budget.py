"""A step of a classifier takes about as long as it may, and never cuts a judgement."""

import pytest

from engine.core.classification.budget import FEWEST_TOKENS, STEP_SECONDS, JudgingBudget


def run(budget: JudgingBudget, seconds_per_token: float, steps: int = 30) -> list[float]:
    """The times of steps that use up their shares."""
    times = []
    for _ in range(steps):
        num_tokens = budget.num_tokens(budget.plan_prompts(), 0)
        times.append(0.001 + num_tokens * seconds_per_token)
        budget.observe(0, num_tokens, times[-1])
    return times


@pytest.mark.parametrize("seconds_per_token", [1e-6, 1e-4, 1e-3])
def test_steps_come_to_take_about_their_time_and_no_longer(seconds_per_token: float) -> None:
    times = run(JudgingBudget(), seconds_per_token)
    assert max(times) < 1.1 * STEP_SECONDS
    assert times[-1] > 0.8 * STEP_SECONDS


def test_a_slow_model_still_computes_a_judgement_in_one_step() -> None:
    budget = JudgingBudget()
    run(budget, 0.1)
    assert budget.plan_prompts() == budget.plan(1, 1) == FEWEST_TOKENS


def test_small_steps_teach_nothing_and_one_slow_step_little() -> None:
    budget = JudgingBudget()
    run(budget, 1e-4)
    share = budget.plan_prompts()
    budget.observe(0, 5, 1.0)
    assert budget.plan_prompts() == share
    budget.observe(0, int(share), 1.0)
    assert budget.plan_prompts() > share / 2.1


def test_a_fixed_number_stays() -> None:
    budget = JudgingBudget(100)
    run(budget, 1.0)
    assert (budget.plan_prompts(), budget.units(7, 1000), budget.num_tokens(7.5, 1000)) == (100, 7, 7)
