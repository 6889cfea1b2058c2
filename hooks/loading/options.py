"""The options that hold for every hook of a pipeline: name, type, limits, default and meaning, in one place.

A server offers exactly these options to its users: the docstring of a field is its help.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from hooks.loading.loader import LOAD_TIMEOUT

Seconds = Annotated[float, Field(gt=0)]


class PipelineOptions(BaseModel):
    """Raises `ValueError` for a value out of range."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    hook_timeout: Seconds = 10.0  # contract 4.1
    """Seconds that one call of a hook may take"""
    hook_load_timeout: Seconds = LOAD_TIMEOUT
    """Seconds that it may take to import and build a hook"""
    max_rewinds: Annotated[int, Field(ge=0)] = 8  # contract 8.3
    """Most rewinds of the outputs of one request. One more ends the request"""
    rewritten_tokens: Literal["withhold", "keep"] = "withhold"  # contract 3.6
    """Ids and logprobs of rewritten text: withheld, or kept, as TensorRT-LLM does"""
    usage: Literal["generated", "released"] = "generated"  # contract 6.1
    """Tokens that usage counts"""
    terminate_finish_reason: Literal["content_filter", "stop"] = "content_filter"  # contract 3.3
    """finish_reason of an output that a hook ended; TensorRT-LLM's is stop. The Messages API says
    refusal or end_turn"""
    tool_calls: Literal["whole", "stream"] = "whole"  # contract 3.20
    """When a tool call leaves: whole, once the hooks have passed all of it, or in pieces as they pass
    them. Many clients complete the JSON of a call that a hook cut, and run it"""
