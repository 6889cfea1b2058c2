"""Requests and models say things about themselves."""

from typing import Any

import pytest

from engine.protocol import GenerationRequest, ModelInfo, SamplingParams

TOOL = {"type": "function", "function": {"name": "f"}}


def request(**fields: Any) -> GenerationRequest:
    return GenerationRequest(**{"request_id": "r", "model": "m", "endpoint": "chat", **fields})


@pytest.mark.parametrize(
    ("fields", "is_guided"),
    [
        ({}, False),
        ({"extra": {"response_format": {"type": "text"}}}, False),
        ({"extra": {"response_format": {"type": "json_object"}}}, True),
        ({"extra": {"structured_outputs": {"regex": "a"}}}, True),
        ({"extra": {"guided_choice": ["a"]}}, True),
        ({"extra": {"guided_choice": None}}, False),
        ({"tools": (TOOL,)}, False),
        ({"tools": (TOOL,), "tool_choice": "none"}, False),
        ({"tools": (TOOL,), "tool_choice": "required"}, True),
        ({"tools": (TOOL,), "tool_choice": {"type": "function", "function": {"name": "f"}}}, True),
    ],
)
def test_a_request_says_whether_a_grammar_may_guide_its_outputs(
    fields: dict[str, Any], is_guided: bool
) -> None:
    asked = request(**fields)
    assert asked.is_guided is is_guided
    assert ModelInfo(can_rewind=True).can_rewind_for(asked)
    assert ModelInfo(can_rewind=True, can_rewind_guided=False).can_rewind_for(asked) is not is_guided


def test_no_rewind_of_searched_outputs_or_by_an_engine_that_cannot() -> None:
    assert not ModelInfo().can_rewind_for(request())
    assert not ModelInfo(can_rewind=True).can_rewind_for(request(sampling=SamplingParams(best_of=2)))
