"""Who asks: the keys of clients, known by their digests alone."""

import hashlib
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from proxy.settings.limits import NO_LIMITS, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One client's key, and what it may use."""

    name: str = ""
    """Empty: a key without a name (`api_key`)."""
    tenant: str = "default"
    policy: str | Mapping[str, str] | None = field(default=None, hash=False)
    """A policy's name for all models, or one for each model by a name of the model. None: the key names none.
    """
    models: tuple[str, ...] | None = None
    """Names of the models that the key may use. None: all."""
    limits: Limits = field(default=NO_LIMITS, hash=False)
    limits_per_user: Limits = field(default=NO_LIMITS, hash=False)
    digest: str = field(default="", repr=False)
    """As `digest_of` gives it."""
    expires: float | None = None
    """Seconds since 1970. From then on the key is not valid. None: it does not expire."""
    is_previous: bool = False
    """Whether this is the value that the key had before its rotation."""

    @property
    def has_expired(self) -> bool:
        return self.expires is not None and self.expires <= time.time()

    def may_use(self, names: Iterable[str]) -> bool:
        """Whether the key may use the model with these names."""
        return self.models is None or any(name in self.models for name in names)

    def policy_for(self, names: Iterable[str]) -> str | None:
        """The policy that the key names for the model with these names. None: it names none."""
        if not isinstance(self.policy, Mapping):
            return self.policy
        return next((self.policy[name] for name in names if name in self.policy), None)


KEY_BYTES = 32
"""Random bytes of a new key."""

ANONYMOUS = Key(name="anonymous")
"""Whoever asks a server without keys."""


def new_key() -> str:
    """A key that nobody guesses, as a client sends it."""
    return f"weir-{secrets.token_urlsafe(KEY_BYTES)}"


def digest_of(given: bytes) -> str:
    """The SHA-256 of a key as a client sends it, in hexadecimal digits."""
    return hashlib.sha256(given).hexdigest()
