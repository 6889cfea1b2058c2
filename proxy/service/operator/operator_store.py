"""The operator's store in a service: it makes keys, keeps decisions, and notes changes."""

from collections.abc import Callable, Iterable

from proxy.deployment.deployment import Policy
from proxy.service.operator.decision_writer import DecisionWriter
from proxy.service.operator.stored_keys import StoredKeys
from proxy.service.operator_side import OperatorSide
from proxy.service.usage import UsageCounts
from proxy.settings.serve import ServeSettings
from proxy.storage.operator.store import Store
from proxy.storage.records import Change
from proxy.telemetry.feed import DecisionFeed


class OperatorStore(OperatorSide):
    """Keeps keys, decisions and changes in a store."""

    keys: StoredKeys

    def __init__(
        self,
        settings: ServeSettings,
        feed: DecisionFeed,
        policies: Callable[[], Iterable[Policy]],
        usage: UsageCounts,
    ) -> None:
        """`policies`: those that requests run under now. `usage`: what is written. Raises as `Store`."""
        self.store = Store(settings, has_admin_key=bool(settings.admin_key))
        self.decisions = DecisionWriter(self.store, feed, settings, policies, usage)
        self.keys = StoredKeys(self.store)
        self._is_alone = settings.workers == 1

    async def note(self, change: Change) -> None:
        await self.store.note(change)

    async def start(self) -> None:
        await self.store.start()
        await self.keys.refresh()

    async def run(self) -> None:
        await self.keys.run()

    def keep_decisions(self) -> None:
        if self.store.is_kept:
            self.decisions.start()

    def keep_latest_decisions(self) -> None:
        """Begin to keep the latest decisions in memory, unless a store keeps them. An operator looks at them
        now. One of several processes would have only its own, and keeps none."""
        if not self.store.is_kept and self._is_alone:
            self.decisions.start()

    async def write_decisions(self) -> None:
        await self.decisions.aclose()

    async def aclose(self) -> None:
        await self.store.aclose()
