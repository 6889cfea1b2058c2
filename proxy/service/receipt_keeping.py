"""The seam of receipts, whose code may be left out."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from prometheus_client.core import Metric

from engine.protocol import GenerationRequest
from engine.protocol.parts import load
from engine.streams.flow import Stage
from proxy.deployment.deployment import Route
from proxy.service.applied_guards import AppliedGuards
from proxy.settings.serve import ServeSettings
from proxy.telemetry.feed import DecisionFeed


class BodyDigest(NamedTuple):
    """A body of HTTP."""

    bytes: int
    sha256: str
    """In hexadecimal."""


def body_digest(body: bytes) -> BodyDigest:
    return BodyDigest(len(body), hashlib.sha256(body).hexdigest())


class Receipt(Protocol):
    """The receipt of one answer, while it is made."""

    def around(self, guarding: Sequence[Stage], *, is_refused: bool = False) -> list[Stage]:
        """The stages of the guard, among those that count what the hooks see and what they release.
        `is_refused`: a hook answers in the engine's place."""

    def end(self, request_id: str, status: int, outcome: str | None, body: bytes | None) -> None:
        """The answer has ended. `outcome`: as in metrics. `body`: all of it, unless it was a stream."""


class ReceiptKeeping:
    """Makes no receipts."""

    keeps_any = False
    revision_secret: bytes | None = None
    """The key of the revisions of policies, which is as old as that of the receipts. None: there is none."""

    def check(self) -> None:
        """Raise `APIError` 503 while receipts cannot be written: no answer comes without one."""

    def begin(
        self, route: Route, request: GenerationRequest, prompt: BodyDigest | None, applied: AppliedGuards
    ) -> Receipt | None:
        """The receipt of an admitted request, which runs in this task. `prompt`: of its body."""
        return None

    def metrics(self) -> Iterable[Metric]:
        return ()

    async def aclose(self) -> None:
        """Write the receipts that wait. No request runs any more."""


def receipt_keeping(settings: ServeSettings, feed: DecisionFeed) -> ReceiptKeeping:
    """Raises `ValueError` and `OSError` if the settings ask for receipts that cannot be written, and
    `MissingPart` if their code is left out."""
    if settings.receipts is None:
        return ReceiptKeeping()
    made: ReceiptKeeping = load("proxy.service.receipts.keeper:ReceiptKeeper", "the writer of receipts")(
        settings.receipts, settings.receipts_key, feed
    )
    return made
