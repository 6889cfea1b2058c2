"""A plan puts runs in an order that treats all targets alike."""

from weir_bench.plan import Level, Plan, Target
from weir_bench.prompts import WordPrompts


def test_targets_take_turns_with_the_same_prompts_and_arrivals() -> None:
    plan = Plan(
        targets=[Target("a", "http://a"), Target("b", "http://b")],
        levels=[Level(request_rate=2.0), Level(request_rate=4.0)],
        prompts=WordPrompts(seed=1, num_words=3),
        seed=1,
        repetitions=3,
        num_prompts=5,
    )
    order = [
        (number, str(level), repetition, target.name) for number, level, repetition, target in plan.order()
    ]
    assert [name for *_, name in order] == list("abbaab" * 2)
    assert [number for number, *_ in order] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]
    assert {level for _, level, *_ in order[:6]} == {"2 requests/s"}
    first, second = (plan.arrivals(plan.levels[0], number) for number in (1, 2))
    assert first == plan.arrivals(plan.levels[0], 1)
    assert first != second
