"""The seam of the operator's store, whose code may be left out."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from engine.protocol.parts import MissingPart, load
from proxy.deployment.deployment import Policy
from proxy.deployment.keys import Key
from proxy.settings.serve import ServeSettings
from proxy.storage.records import Change
from proxy.telemetry.feed import DecisionFeed


class MadeKeys(Protocol):
    """The keys that the operator made."""

    @property
    def has_any(self) -> bool:
        """Whether a key was ever made. Then requests need a key, also once all keys are revoked."""

    @property
    def valid(self) -> Sequence[Key]:
        """The keys that are not revoked."""

    def find(self, digest: str) -> Key | None:
        """The valid key with this digest."""


class OperatorSide(Protocol):
    """What a service has of its operator. Its methods raise `StateError`."""

    @property
    def keys(self) -> MadeKeys: ...
    async def note(self, change: Change) -> None:
        """Keep a change that has been made."""

    async def start(self) -> None: ...
    async def run(self) -> None:
        """Notice the changes of other processes, until it is cancelled."""

    def keep_decisions(self) -> None:
        """Begin to keep the decisions of all requests."""

    async def write_decisions(self) -> None:
        """Write those that wait. No other is kept."""

    async def aclose(self) -> None: ...


class NoKeys:
    has_any = False
    valid: Sequence[Key] = ()

    def find(self, digest: str) -> Key | None:
        return None


class NoOperator:
    """Implements `OperatorSide` where there is no store: no key is made, and nothing is kept."""

    keys = NoKeys()

    async def note(self, change: Change) -> None:
        pass

    async def start(self) -> None:
        pass

    async def run(self) -> None:
        pass

    def keep_decisions(self) -> None:
        pass

    async def write_decisions(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


def operator_side(
    settings: ServeSettings, feed: DecisionFeed, policies: Callable[[], Iterable[Policy]]
) -> OperatorSide:
    """`policies`: those that requests run under now. Raises `ValueError` for a store that cannot be used, and
    `MissingPart` for options of the operator if there is no code for them."""
    try:
        make = load("proxy.service.operator.operator_store:OperatorStore", "the operator's store")
    except MissingPart:
        if settings.store is not None or settings.admin_key or settings.admin_port is not None:
            raise
        return NoOperator()
    made: OperatorSide = make(settings, feed, policies)
    return made
