"""Keeps a receipt of each answer: makes them, and has a thread sign and write them."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from prometheus_client.core import Metric

from engine.protocol import GenerationRequest
from proxy.deployment.deployment import Route
from proxy.service.applied_guards import AppliedGuards
from proxy.service.receipt_keeping import BodyDigest, ReceiptKeeping
from proxy.service.receipts.answer_receipt import AnswerReceipt, hear
from proxy.storage.receipts.chain import Chain
from proxy.storage.receipts.keys import PUBLIC, SigningKey, signing_key, write_whole
from proxy.telemetry.families import counter, gauge
from proxy.telemetry.feed import DecisionFeed
from proxy.wire.errors import APIError

logger = logging.getLogger("weir.receipts")

GATHER = 0.25
"""Seconds in which receipts gather, to be written together. A process that is killed loses these."""
SYNC = 1.0
"""Seconds between two times that the disk has all receipts. A machine that loses its power loses these."""
BATCH = 500
"""Most receipts in one write."""
MAX_WAITING = 10_000
"""No new request is taken while so many wait to be written."""
RETRY = 1.0
"""Seconds between a failed write and the next try."""
REMIND = 60.0
"""Seconds between two log messages that writing fails."""
CLOSING = 5.0
"""Most seconds in which the last receipts are written."""


class ReceiptWriter:
    """A file of receipts, and the thread that writes to it."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._waiting: deque[AnswerReceipt] = deque()
        self._is_wanted, self._is_closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="weir-receipts", daemon=True)
        self._reminded: float | None = None
        self.num_written = self.num_failures = 0
        self.has_failed = False
        """Whether the last write failed."""
        self._thread.start()

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def put(self, receipt: AnswerReceipt) -> None:
        self._waiting.append(receipt)
        if not self._is_wanted.is_set():
            self._is_wanted.set()

    def close(self) -> None:
        """Write the receipts that wait, or try to for `CLOSING` seconds."""
        self._is_closing.set()
        self._is_wanted.set()
        self._thread.join(CLOSING)
        if self._waiting:
            logger.error("%d receipts could not be written", len(self._waiting))

    def _run(self) -> None:
        is_last, num_synced, synced = False, 0, time.monotonic()
        try:
            while not is_last:
                is_synced = num_synced == self.num_written
                self._is_wanted.wait(None if is_synced else max(0.0, synced + SYNC - time.monotonic()))
                self._is_wanted.clear()
                is_last = self._is_closing.wait(GATHER)
                self._write_all()
                if self.num_written > num_synced and (is_last or time.monotonic() - synced >= SYNC):
                    synced = time.monotonic()
                    if self._tried(self._chain.sync):
                        num_synced = self.num_written
        finally:
            self._chain.close()

    def _write_all(self) -> None:
        while batch := list(islice(self._waiting, BATCH)):
            if not self._tried(self._append, batch):
                if self._is_closing.is_set():
                    return
                self._is_closing.wait(RETRY)
                continue
            for _ in batch:
                self._waiting.popleft()
            self.num_written += len(batch)

    def _append(self, batch: Sequence[AnswerReceipt]) -> None:
        self._chain.append([receipt.fields() for receipt in batch])

    def _tried(self, write: Any, *arguments: Any) -> bool:
        """Whether the write has succeeded."""
        try:
            write(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever happened, the receipts are written later
            self.num_failures += 1
            self.has_failed = True
            now = time.monotonic()
            if self._reminded is None or now - self._reminded >= REMIND:
                self._reminded = now
                why = getattr(error, "strerror", None) or type(error).__name__
                logger.error("%s cannot be written: %s; requests are refused", self._chain.path, why)
            return False
        if self.has_failed:
            self.has_failed, self._reminded = False, None
            logger.warning("%s can be written again", self._chain.path)
        return True


class ReceiptKeeper(ReceiptKeeping):
    """Keeps receipts from its making to `aclose`."""

    keeps_any = True

    def __init__(self, folder: Path, key_file: Path | None, feed: DecisionFeed) -> None:
        """Raises `ValueError` and `OSError`."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = signing_key(key_file, folder)
        _publish(key, folder / PUBLIC)
        chain = Chain(folder, key.sign)
        self.revision_secret = key.revision_secret
        logger.info(
            "receipts are written to %s, from number %d on; the key's fingerprint is %s",
            *(chain.path, chain.head.number + 1, key.fingerprint),
        )
        self._writer = ReceiptWriter(chain)
        self._unsubscribe = feed.subscribe(hear, hears_holds=False)

    def check(self) -> None:
        if self._writer.has_failed or self._writer.num_waiting >= MAX_WAITING:
            raise APIError(
                503, "The receipts of answers cannot be written now.", "server_error", retry_after=1
            )

    def begin(
        self, route: Route, request: GenerationRequest, prompt: BodyDigest | None, applied: AppliedGuards
    ) -> AnswerReceipt:
        return AnswerReceipt(route, request, prompt, applied, self._writer.put)

    def metrics(self) -> Iterable[Metric]:
        writer = self._writer
        yield counter("receipts", "Receipts written.", (), [((), writer.num_written)])
        text = "Writes of receipts that failed."
        yield counter("receipt_failures", text, (), [((), writer.num_failures)])
        yield gauge("receipts_waiting", "Receipts to be written.", (), [((), writer.num_waiting)])

    async def aclose(self) -> None:
        self._unsubscribe()
        await asyncio.to_thread(self._writer.close)


def _publish(key: SigningKey, file: Path) -> None:
    """Write the public key beside the receipts, for whoever verifies them."""
    if not file.exists() or file.read_bytes() != key.public_pem:
        write_whole(file, key.public_pem)
