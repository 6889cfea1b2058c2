"""The options of upstreams that speak the Messages API."""

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field


class MessagesOptions(BaseModel):
    """Values that the Messages API needs, and that clients of other APIs do not give (messages)."""

    model_config = ConfigDict(defer_build=True)

    upstream_max_tokens: Annotated[int, Field(ge=1)] = 4096
    """Most tokens of an answer for a request that does not say: the Messages API has no default (messages)"""
    upstream_version: ClassVar[str] = "2023-06-01"
    """The header anthropic-version of every request. Later versions refuse temperature, top_p and top_k."""
