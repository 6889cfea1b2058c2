"""The options of a pool of upstreams."""

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field


class PoolOptions(BaseModel):
    """The choice between several upstreams, and the time that one is waited for (upstreams)."""

    model_config = ConfigDict(defer_build=True)

    routing: Literal["affinity", "least"] = "affinity"
    """affinity: prompts that begin alike go to one upstream, for its prefix cache, while it has room. least:
    to the upstream with the fewest requests (upstreams)"""
    upstream_max_connections: Annotated[int, Field(ge=1)] | None = None
    """Requests at one upstream at the same time; if all have so many, a request is refused with 429 (default:
    any number)"""
    upstream_first_token_timeout: Annotated[float, Field(ge=0)] = 300.0
    """Seconds that an upstream has for the first token, if there are several; then another one is asked.
    Comments and events without text do not count. 0: as long as --upstream-timeout (upstreams)"""
    upstream_retries: Annotated[int, Field(ge=0)] = 2
    """Other upstreams that a request is sent to if it fails before its first token (upstreams)"""
    upstream_health_interval: ClassVar[float] = 10.0
    """Seconds between two health checks of an upstream, if there are several. 0: no checks. A check costs an
    upstream less than a request does."""
