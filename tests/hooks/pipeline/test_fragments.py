"""Fragments are cut anywhere, and nothing of a forbidden span gets out (a longer run: `make bench-leaks`)."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.leaks import run
from hooks.pipeline.fragments import Fragment, TokenGroup, cut, take_from


@pytest.fixture(autouse=True)
def mode() -> str:
    return "in-process"


async def test_nothing_of_a_forbidden_span_gets_out() -> None:
    assert 0 < await run(3_000, seed=7) <= 3


@given(st.lists(st.text("ab😀", max_size=4)), st.integers(0, 40))
def test_taking_from_the_front_splits_as_cutting_does(texts: list[str], length: int) -> None:
    fragments = [Fragment(text, TokenGroup(())) for text in texts]
    length = min(length, sum(map(len, texts)))
    left = deque(fragments)
    taken = take_from(left, length)
    for ours, theirs in zip((taken, left), cut(fragments, length), strict=True):
        assert [_facts(f) for f in ours] == [_facts(f) for f in theirs]


def _facts(fragment: Fragment) -> tuple[object, ...]:
    return fragment.text, fragment.group, fragment.is_first, fragment.is_last, fragment.replaced
