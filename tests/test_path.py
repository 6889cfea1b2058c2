"""The figures of `python -m tools.path`. A change that needs more functions says why, and changes them."""

import pytest

from tools.path import files_of, passed

MOST = {"upstream": (25, 15, 242, 59), "in process": (24, 14, 233, 59)}
"""By the way of a delta: its functions and files, and those of the request."""


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "whole"])
@pytest.mark.parametrize("way", MOST)
async def test_a_guarded_request_passes_few_functions(way: str, stream: bool) -> None:
    request, delta = await passed(way, stream)
    numbers = len(delta), len(files_of(delta)), len(request), len(files_of(request))
    assert all(number <= most for number, most in zip(numbers, MOST[way], strict=True)), numbers
