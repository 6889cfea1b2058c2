"""The cost of prompt tokens, learned from steps that take known times."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.scheduling.prompt_cost import REACHES, PromptCost, num_attended


def learned(token: float, context: float, overhead: float = 0.0) -> PromptCost:
    """From two prompts of 4,000 tokens."""
    cost, rng = PromptCost(), random.Random(0)
    for _ in range(2):
        done = 0
        while done < 4000:
            n = rng.randrange(20, 60)
            added = overhead + n * token + context * num_attended(n, done)
            cost.learn(n, num_attended(n, done), added * rng.uniform(0.95, 1.05))
            done += n
    return cost


@pytest.mark.parametrize("reach", REACHES)
@pytest.mark.parametrize("num_context", [0, 1000, 4000])
def test_what_tokens_cost_is_foretold_at_every_place_of_a_prompt(reach: float, num_context: int) -> None:
    cost = learned(1e-4, 1e-4 / reach, overhead=1e-3)
    attended = num_attended(40, num_context)
    assert cost.seconds(40, attended) == pytest.approx(1e-3 + 4e-3 + attended * 1e-4 / reach, rel=0.4)


def test_attention_that_costs_nothing_is_learned() -> None:
    cost = learned(1e-4, 0.0)
    assert cost.units(10, num_attended(10, 4000)) < 1.2 * 10


@given(st.integers(1, 5000), st.integers(0, 30000))
def test_units_pay_for_the_tokens_that_cost_them(num_tokens: int, num_context: int) -> None:
    cost = PromptCost()
    units = cost.units(num_tokens, num_attended(num_tokens, num_context))
    assert cost.num_tokens(units, num_context) == num_tokens
    assert num_tokens <= units


def test_what_is_forgotten_is_learned_again() -> None:
    cost = learned(1e-3, 0.0)
    cost.forget()
    assert cost.fit() == (0.0, 0.0)
    cost.learn(10, num_attended(10, 0), 1.0)
    assert cost.seconds(10, num_attended(10, 0)) == pytest.approx(1.0)
