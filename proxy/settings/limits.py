"""How much the requests of one key, or of one policy, may ask for."""

from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

MOST = 2**53
"""Up to here, numbers are exact in JSON, in the store and in every state."""

AtLeastOne = Annotated[int, Field(ge=1, le=MOST)]


class Limits(BaseModel):
    """Each None: no limit. Raises `ValueError` for a value out of range."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    requests_per_minute: AtLeastOne | None = None
    """Requests that may begin in a minute"""
    tokens_per_minute: AtLeastOne | None = None
    """Tokens of prompts and outputs in a minute"""
    concurrent_requests: AtLeastOne | None = None
    """Requests at the same time"""
    max_tokens: AtLeastOne | None = None
    """Most tokens of one output; a request that asks for more is refused"""


NO_LIMITS = Limits()


class Subject(NamedTuple):
    """Who has limits: a key, or a policy."""

    kind: str
    """`key` or `policy`."""
    name: str
    limits: Limits

    def of(self, what: str) -> str:
        """The name under which `what` is counted."""
        return f"{self.kind}:{self.name}:{what}"
