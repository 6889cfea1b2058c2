"""A new configuration while the service runs.

It is prepared beside the old one: its hooks are built and tested, its engines started. Then it is taken, and
new requests get it, while those that run end on the old one. If anything is wrong, the old one stays.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from proxy.deployment.build import build
from proxy.deployment.deployment import Deployment
from proxy.deployment.deployments import Deployments
from proxy.deployment.read import keys_of
from proxy.deployment.start_errors import START_ERRORS, start_error
from proxy.network.tls import Certificates
from proxy.service.applied_guards import Applied
from proxy.service.operator_side import OperatorSide
from proxy.settings.directory import DirectorySettings
from proxy.settings.network import TLSOptions
from proxy.settings.serve import ServeSettings
from proxy.storage.records import Change
from proxy.wire.errors import APIError

logger = logging.getLogger("weir.admin")

RELOADED = frozenset(
    {
        *DirectorySettings.model_fields,
        *TLSOptions.model_fields,
        "post_processor_hook",
        "api_key",
        "api_key_file",
    }
)
"""The options that a reload can change. Other options need a restart."""

SIGNAL = "signal"
"""The operator's name in the list of changes, if a signal asked for the reload."""
RETRY = 0.5
"""Seconds after which a reload that a signal asks for is tried again while another one runs."""


class ReloadError(Exception):
    """The new configuration cannot be used, for the reason in the message."""


class ReloadingError(Exception):
    """A reload runs already."""


Read = Callable[[], ServeSettings]
"""Reads the settings again. Raises `SystemExit` with what is wrong."""


async def read_again(read: Read) -> ServeSettings:
    """Raises `ReloadError`. Requests are served meanwhile."""

    def settings() -> ServeSettings | str:
        try:
            return read()
        except SystemExit as error:
            return str(error)

    found = await asyncio.to_thread(settings)
    if isinstance(found, str):
        raise ReloadError(found)
    return found


class _Prepared(NamedTuple):
    settings: ServeSettings
    deployment: Deployment
    context: ssl.SSLContext | None
    """The certificates of new connections over TLS."""


class Reloads:
    """Replaces the configuration of one process."""

    def __init__(
        self,
        settings: ServeSettings,
        operator: OperatorSide,
        certificates: Certificates,
        deployments: Deployments,
        applied: Applied,
    ) -> None:
        """`settings`: the configuration in effect."""
        self._settings = settings
        self._operator = operator
        self._certificates = certificates
        self._deployments = deployments
        self._applied = applied
        self._signalled: set[asyncio.Task[None]] = set()
        self._is_signalled = False
        """A signal has come that no reload has obeyed."""
        self._obeys_signal = False
        self._prepared: _Prepared | None = None
        self._is_running = False
        self.read: Read | None = None
        """Set by whoever read the settings. Without it, there is no reload."""
        self.run: Callable[[], Awaitable[None]] = self._run_alone
        """A worker replaces it, to reload all workers (`proxy.workers.reload`). Raises `ReloadError` and
        `ReloadingError`."""

    async def reload(self, operator: str) -> None:
        """Replace the configuration by the one that its file has now. Logs how that ends, and keeps who did.

        Raises `APIError` 400 with what is wrong, or 409 if a reload runs.
        """
        try:
            await self.run()
        except ReloadingError:
            raise APIError(409, "A reload runs already.", code="reload_runs") from None
        except ReloadError as error:
            reason = f"The configuration stays as it was: {error}"
            logger.error("%s: %s", operator, reason)
            raise APIError(400, reason, code="reload_failed") from None
        current = self._deployments.current
        logger.info("%s: reload configuration %d", operator, current.number)
        detail = {"number": current.number, "revisions": self._applied.revisions(current)}
        await self._operator.note(Change(operator, "reload", "configuration", detail))

    def signal(self) -> None:
        """Reload because a signal says so."""
        task = asyncio.get_running_loop().create_task(self.reload_by_signal())
        self._signalled.add(task)
        task.add_done_callback(self._signalled.discard)

    async def aclose(self) -> None:
        """End a reload that a signal asked for, and close the prepared deployment."""
        for task in self._signalled:
            task.cancel()
        await asyncio.gather(*self._signalled, return_exceptions=True)
        await self.drop()

    async def reload_by_signal(self) -> None:
        """Reload. If a reload runs, another one follows, for all signals that come meanwhile."""
        self._is_signalled = True
        if self._obeys_signal:
            return
        self._obeys_signal = True
        try:
            while self._is_signalled:
                self._is_signalled = False
                await self._try_by_signal()
        finally:
            self._obeys_signal = False

    async def _try_by_signal(self) -> None:
        try:
            await self.reload(SIGNAL)
        except APIError as error:  # `reload` has logged every other one
            if error.status == 409:
                self._is_signalled = True
                await asyncio.sleep(RETRY)

    async def _run_alone(self) -> None:
        if self._is_running:
            raise ReloadingError
        if self.read is None:
            raise ReloadError("this server was not started from settings that can be read again")
        self._is_running = True
        try:
            await self.prepare(await read_again(self.read))
            self.take()
        finally:
            self._is_running = False

    async def prepare(self, settings: ServeSettings) -> None:
        """Build and start the deployment of `settings`. Raises `ReloadError`."""
        await self.drop()
        check_reloadable(self._settings, settings)
        if keys_of(self._settings) and not keys_of(settings):
            raise ReloadError("there is no key, and anybody could use the service: this needs a restart")
        try:
            context = self._certificates.renewed(settings)
            deployment = await build(settings, self._deployments.current)
        except START_ERRORS as error:
            raise ReloadError(start_error(error)) from error
        try:
            await deployment.start_hooks(self._deployments.current)
            await deployment.start_engines(self._deployments.all)
        except BaseException as error:
            await deployment.aclose(self._deployments.all)
            if isinstance(error, START_ERRORS):
                raise ReloadError(start_error(error)) from error
            raise
        self._prepared = _Prepared(settings, deployment, context)

    def take(self) -> None:
        """Use the prepared deployment for new requests."""
        if self._prepared is not None:
            self._settings, deployment, self._certificates.context = self._prepared
            self._prepared = None
            self._deployments.deploy(deployment)

    async def drop(self) -> None:
        """Close the prepared deployment."""
        if self._prepared is not None:
            deployment = self._prepared.deployment
            self._prepared = None
            await deployment.aclose(self._deployments.all)


def check_reloadable(old: ServeSettings, new: ServeSettings) -> None:
    """Raise `ReloadError` if an option differs that needs a restart."""
    fixed = ServeSettings.model_fields.keys() - RELOADED
    if changed := sorted(name for name in fixed if getattr(old, name) != getattr(new, name)):
        raise ReloadError(f"these options need a restart: {', '.join(changed)}")
