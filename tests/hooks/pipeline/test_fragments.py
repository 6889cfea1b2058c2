"""Nothing of a forbidden span gets out, over random streams (a longer run: `make bench-leaks`)."""

import pytest

from benchmarks.leaks import run


@pytest.fixture(autouse=True)
def mode() -> str:
    return "in-process"


async def test_nothing_of_a_forbidden_span_gets_out() -> None:
    assert 0 < await run(3_000, seed=7) <= 3
