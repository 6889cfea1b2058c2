"""The current deployment, and those before it that requests still run under."""

import asyncio
from collections.abc import Callable

from proxy.deployment.deployment import Deployment, Policy


class Deployments:
    """A request that began under an earlier deployment stays with it."""

    def __init__(
        self,
        first: Deployment,
        is_ending: Callable[[], bool],
        retire: Callable[[Deployment, list[Deployment]], None],
    ) -> None:
        """`is_ending`: whether the server ends, which closes all deployments. `retire` gets one that is about
        to be closed, and the rest."""
        self.current = first
        self._is_ending = is_ending
        self._retire = retire
        self._retired: list[Deployment] = []
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def all(self) -> list[Deployment]:
        """The current one first."""
        return [self.current, *self._retired]

    def policies(self) -> list[Policy]:
        return [policy for one in self.all for policy in one.policies.values()]

    def deploy(self, deployment: Deployment) -> None:
        """Give new requests this started deployment. What the one before has alone is closed once its last
        request ends."""
        older, self.current = self.current, deployment
        self._retired.append(older)
        task = asyncio.get_running_loop().create_task(self._close_retired(older))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close_retired(self, older: Deployment) -> None:
        await older.wait_until_idle()
        if not self._is_ending():  # else it is closed with all of them
            self._retired.remove(older)
            self._retire(older, self.all)
            await older.aclose(self.all)

    async def wait_until_idle(self) -> None:
        """Returns once nothing runs."""
        for deployment in self.all:
            await deployment.wait_until_idle()

    async def close_engines(self) -> None:
        """Abort all requests of all engines. Each is closed once, whichever deployments have it."""
        all_ = self.all
        await asyncio.gather(*(one.close_engines(all_[:i]) for i, one in enumerate(all_)))

    async def close_hooks(self) -> None:
        await asyncio.gather(*(one.close_hooks() for one in self.all), *self._closing)
