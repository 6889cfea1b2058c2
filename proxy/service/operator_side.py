"""The seam of the operator's store, whose code may be left out."""

from collections.abc import Callable, Iterable, Sequence

from engine.protocol.parts import MissingPart, load
from proxy.deployment.deployment import Policy
from proxy.deployment.keys import Key
from proxy.service.usage import UsageCounts
from proxy.settings.serve import ServeSettings
from proxy.storage.records import Change
from proxy.telemetry.feed import DecisionFeed


class MadeKeys:
    """The keys that the operator made: none without a store."""

    has_any = False
    """Whether a key was ever made. Then requests need a key, also once all keys are revoked."""

    @property
    def valid(self) -> Sequence[Key]:
        """The keys that are not revoked."""
        return ()

    def find(self, digest: str) -> Key | None:
        """The valid key with this digest."""
        return None


class OperatorSide:
    """The operator's part of a service. Without a store it keeps nothing. Its methods raise `StateError`."""

    keys = MadeKeys()

    async def note(self, change: Change) -> None:
        """Keep a change that has been made."""

    async def start(self) -> None:
        """Open the store."""

    async def run(self) -> None:
        """Notice the changes of other processes, until it is cancelled."""

    def keep_decisions(self) -> None:
        """Begin to keep the decisions of all requests."""

    async def write_decisions(self) -> None:
        """Write the decisions that wait. Later decisions are not kept."""

    async def aclose(self) -> None:
        """Close the store."""


def operator_side(
    settings: ServeSettings, feed: DecisionFeed, policies: Callable[[], Iterable[Policy]], usage: UsageCounts
) -> OperatorSide:
    """`policies`: those that requests run under now. `usage`: what is written. Raises `ValueError` for a
    store that cannot be used, and `MissingPart` for options of the operator if their code is left out."""
    try:
        make = load("proxy.service.operator.operator_store:OperatorStore", "the operator's store")
    except MissingPart:
        if settings.store is not None or settings.admin_key or settings.admin_port is not None:
            raise
        return OperatorSide()
    made: OperatorSide = make(settings, feed, policies, usage)
    return made
