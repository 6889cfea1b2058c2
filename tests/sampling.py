"""The cases of a product that `make test` runs: a sample in which every two values stand together once.

A test of many parameters mostly fails for one value, or for two of them together. `@pytest.mark.sampled`
leaves the other cases to `make test-all`.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import pytest

Case = Mapping[str, Hashable]


def sample(cases: Sequence[Case]) -> set[int]:
    """The places of some cases, which have each value and each two values that any of the cases has."""
    of_case = [_pairs(case) for case in cases]
    left = set().union(*of_case)
    chosen = set()
    while left:
        best = max(range(len(cases)), key=lambda place: len(of_case[place] & left))
        chosen.add(best)
        left -= of_case[best]
    return chosen


def _pairs(case: Case) -> set[Hashable]:
    """Each value stands in a pair with itself, so a test of one parameter keeps all its cases."""
    return {*combinations(case.items(), 2), *((one, one) for one in case.items())}


def leave_to_the_whole_suite(items: Sequence[pytest.Item]) -> None:
    """Mark as `slow` the cases of sampled tests that are not in the sample."""
    cases_of: dict[str, list[pytest.Function]] = {}
    for item in items:
        is_sampled = item.get_closest_marker("sampled") and not item.get_closest_marker("slow")
        if is_sampled and isinstance(item, pytest.Function):
            cases_of.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for test in cases_of.values():
        chosen = sample([case_of(item) for item in test])
        for place, item in enumerate(test):
            if place not in chosen:
                item.add_marker(pytest.mark.slow)


def case_of(item: pytest.Function) -> Case:
    """The values of its parameters."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return {name: value for param in params.items() for name, value in _values(*param)}


def _values(name: str, value: Any) -> Iterator[tuple[str, Hashable]]:
    """The parts of a tuple are values of their own."""
    if isinstance(value, tuple):
        yield from ((f"{name} {place}", repr(part)) for place, part in enumerate(value))
    else:
        yield name, repr(value)
