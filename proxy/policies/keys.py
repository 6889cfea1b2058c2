"""Who asks: the keys of clients, known by their digests alone."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.policies.limits import NO_LIMITS, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One client's key, and what it may use."""

    name: str = ""
    """Empty: a key without a name (`api_key`)."""
    tenant: str = "default"
    policy: str | Mapping[str, str] | None = None
    """A policy's name for all models, or for each model by its name. None: the model's or the default one."""
    models: tuple[str, ...] | None = None
    """The names of the models that the key may use. None: all."""
    limits: Limits = NO_LIMITS
    digest: str = field(default="", repr=False)
    """As `digest_of` gives it."""

    def may_use(self, model: str) -> bool:
        """`model`: the name of a `ServedModel`."""
        return self.models is None or model in self.models


ANONYMOUS = Key(name="anonymous")
"""Whoever asks a server without keys."""


def digest_of(given: bytes) -> str:
    """The SHA-256 of a key as a client sends it, in hexadecimal digits."""
    return hashlib.sha256(given).hexdigest()
