"""What sequences get of one step."""

from engine.scheduling.sequence import Sequence, SequenceGroup
from engine.scheduling.step_budget import StepBudget
from engine.scheduling.step_plan import StepPlan
from tests.engine.conftest import completion


def sequence(num_tokens: int, num_computed_tokens: int = 0) -> Sequence:
    seq = SequenceGroup(completion((5,))).add([5] * num_tokens, max_tokens=1, detokenizer=None)  # type: ignore[arg-type]
    seq.cache.num_computed_tokens = num_computed_tokens
    return seq


def test_a_prompt_that_cannot_be_finished_leaves_half_to_those_behind_it() -> None:
    plan, long, short = StepPlan(StepBudget(20), 20), sequence(100, 30), sequence(4)
    plan.give(long, plan.share(long))
    plan.give(short, plan.share(short))
    assert (plan.end_of(long), plan.end_of(short), plan.units) == (40, 4, 6)
    assert plan.partial == [long]


def test_a_larger_share_takes_the_place_of_the_first_one() -> None:
    plan, long = StepPlan(StepBudget(20), 20), sequence(100)
    plan.give(long, plan.share(long))
    plan.give(long, plan.largest_share(long))
    assert (plan.end_of(long), plan.units) == (20, 0)


def test_a_sequence_that_decodes_needs_no_units_and_comes_first() -> None:
    plan, prompt, decoding = StepPlan(StepBudget(20), 20), sequence(100), sequence(8, 7)
    plan.give(prompt, plan.share(prompt))
    plan.decode(decoding)
    assert plan.units == 10
    assert [(s.sequence, s.start, s.end) for s in plan.scheduled()] == [(decoding, 7, 8), (prompt, 0, 10)]
