"""Phrases that a prompt begins or that names hold (a longer run: `make bench NAME=leaks`)."""

import pytest

from benchmarks.leaks_prompts import run


@pytest.fixture(autouse=True)
def mode() -> str:
    return "in-process"


async def test_no_phrase_gets_through_that_a_prompt_begins_or_a_name_holds() -> None:  # contract 2.8, 8.6
    assert await run(500, seed=7) > 50
