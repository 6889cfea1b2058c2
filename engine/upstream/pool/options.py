"""The options of a pool of upstreams."""

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic.dataclasses import dataclass


@dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class UpstreamConfig:
    url: str = Field(repr=False)
    """Its base URL, as a client's `base_url`."""
    name: str | None = None
    """Its name in metrics and logs. Affinity ranks upstreams by name. None: the URL's host and port."""
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Its share of the requests, beside other upstreams' weights."""
    api_key: SecretStr | None = None
    """None: `upstream_api_key`."""
    model: str | None = None
    """Its name for the model. None: `upstream_model`."""
    max_connections: Annotated[int, Field(ge=1)] | None = None
    """Most requests at the same time. None: `upstream_max_connections`."""


class PoolOptions(BaseModel):
    """The choice between several upstreams, and the time that one is waited for (upstreams)."""

    model_config = ConfigDict(use_attribute_docstrings=True)

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
