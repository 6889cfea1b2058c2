"""Limits say how much requests may ask for: those of a key, of a policy, or of a key or tenant under it."""

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

MOST = 2**53
"""Up to here, numbers are exact in JSON, in the store and in every state."""

AtLeastOne = Annotated[int, Field(ge=1, le=MOST)]


class Limits(BaseModel):
    """Each None: no limit. Raises `ValueError` for a value out of range."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    requests_per_minute: AtLeastOne | None = None
    """Requests that may begin in a minute"""
    tokens_per_minute: AtLeastOne | None = None
    """Tokens of prompts and outputs in a minute"""
    requests_per_day: AtLeastOne | None = None
    """Requests that may begin in a day of UTC"""
    tokens_per_day: AtLeastOne | None = None
    """Tokens of prompts and outputs in a day of UTC"""
    requests_per_month: AtLeastOne | None = None
    """Requests that may begin in a calendar month of UTC"""
    tokens_per_month: AtLeastOne | None = None
    """Tokens of prompts and outputs in a calendar month of UTC"""
    concurrent_requests: AtLeastOne | None = None
    """Requests at the same time"""
    max_tokens: AtLeastOne | None = None
    """Most tokens of one output; a request that asks for more is refused"""


NO_LIMITS = Limits()
BUDGETS = ("requests_per_day", "tokens_per_day", "requests_per_month", "tokens_per_month")
"""The limits that outlast a restart, if the server's state does."""


Kind = Literal["key", "policy", "policy_key", "policy_tenant", "key_user"]
WHOSE: Mapping[Kind, str] = {
    "key": "this key",
    "policy": "this policy, which all its callers share",
    "policy_key": "this key under its policy",
    "policy_tenant": "this tenant, whose keys share it",
    "key_user": "this user of the key",
}
"""The owner of a limit by its kind, in words for the client."""
SETTINGS: Mapping[Kind, str] = {
    "key": "keys.limits",
    "policy": "policies.limits",
    "policy_key": "policies.limits_per_key",
    "policy_tenant": "policies.limits_per_tenant",
    "key_user": "keys.limits_per_user",
}
"""The setting that holds a limit, by the limit's kind."""


class Subject(NamedTuple):
    """Who has limits: a key, a policy, one key or one tenant under a policy, or one user of a key."""

    kind: Kind
    name: str
    limits: Limits

    def of(self, what: str) -> str:
        """The name under which `what` is counted."""
        return f"{self.kind}:{self.name}:{what}"
