"""The sample of a test's cases."""

from itertools import combinations, product

import pytest

from tests.sampling import case_of, sample

SIZES = (4, 2, 4, 5)
CASES = [dict(zip("abcd", values, strict=True)) for values in product(*map(range, SIZES))]


def test_every_two_values_stand_together_in_a_small_sample() -> None:
    chosen = [CASES[place] for place in sample(CASES)]
    for one, other in combinations("abcd", 2):
        assert {(case[one], case[other]) for case in chosen} == {(case[one], case[other]) for case in CASES}
    assert len(chosen) <= 30 < len(CASES) == 160


def test_pairs_that_no_case_has_are_not_missed() -> None:
    cases = [case for case in CASES if case["a"] != case["c"]]
    chosen = [cases[place] for place in sample(cases)]
    assert {(case["a"], case["c"]) for case in chosen} == {(case["a"], case["c"]) for case in cases}


def test_values_of_one_parameter_are_all_there() -> None:
    assert sample([{"a": 1}, {"a": 2}, {"a": 3}]) == {0, 1, 2}
    assert sample([{}]) == set()


@pytest.mark.parametrize("part", ["first"])
@pytest.mark.parametrize("pair", [("x", 1)])
def test_the_parts_of_a_tuple_are_values(request: pytest.FixtureRequest, pair: object, part: object) -> None:
    assert case_of(request.node) == {"pair 0": "'x'", "pair 1": "1", "part": "'first'"}
