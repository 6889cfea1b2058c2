"""The figures of `python -m tools.path`. A change that needs more functions says why, and changes them."""

import pytest

from tools.path import calls_of

FUNCTIONS = {"delta": 13, "request": 172}
FILES = 35


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "whole"])
async def test_a_guarded_request_passes_few_functions(stream: bool) -> None:
    calls = await calls_of(stream)
    numbers = {"delta": len(calls.of_delta), "request": len(calls.of_request)}
    files = {code.co_filename for code in calls.of_request}
    assert all(numbers[what] <= most for what, most in FUNCTIONS.items()), numbers
    assert len(files) <= FILES
