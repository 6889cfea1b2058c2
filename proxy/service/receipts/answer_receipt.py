"""The receipt of one answer: what is known when it begins, what its hooks decide, and how it ends."""

from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from engine.protocol import Channel, GenerationRequest
from proxy import __version__
from proxy.deployment.deployment import Route
from proxy.service.receipt_keeping import BodyDigest
from proxy.service.receipts.applied import AppliedGuards
from proxy.service.receipts.texts import ReleasedTexts, SeenTexts, outputs
from proxy.storage.receipts.form import digest
from proxy.storage.records import MAX_NAME, DecisionRecord

VERSION = 1
"""Of the fields."""
MAX_DECISIONS = 1000
"""Decisions that a receipt lists. It counts all."""
MAX_REASON = 1000
"""Characters kept of a decision's reason."""
_DECISION = (
    *("hook", "action", "reason", "mode", "output_index", "channel", "tool_name", "offset"),
    *("num_withheld", "num_released", "num_closing", "num_judged", "num_unjudged", "max_unjudged"),
)


class AnswerReceipt:
    """Implements `Receipt`."""

    def __init__(
        self,
        route: Route,
        request: GenerationRequest,
        prompt: BodyDigest | None,
        applied: AppliedGuards,
        put: Callable[[dict[str, Any]], None],
    ) -> None:
        """`put`: takes the finished receipt."""
        self.guards = applied.header
        self.seen, self.released = SeenTexts(), ReleasedTexts()
        self._put = put
        self._applied = applied
        self._asked: dict[str, Any] = {
            "version": VERSION,
            "weir": __version__,
            "answer_id": request.request_id,
            "endpoint": request.endpoint,
            "model": route.model.name,
            "stream": request.stream,
            "tenant": route.key.tenant,
            "key": route.key.name,
            "user": request.user and request.user[:MAX_NAME],
            "prompt": None if prompt is None else prompt._asdict(),
        }
        self._decisions: list[DecisionRecord] = []
        self._num_decisions = 0
        self._written: Counter[tuple[int, Channel]] = Counter()
        CURRENT.set(self)

    def hear(self, record: DecisionRecord) -> None:
        """Holds are not listed: the text left later, or it is counted as withheld."""
        if record.action == "hold":
            return
        self._num_decisions += 1
        if self._num_decisions <= MAX_DECISIONS:
            self._decisions.append(record)
        index, channel = record.output_index, record.channel
        if record.mode == "enforce" and index is not None and channel != "prompt":
            if record.num_released:
                self._written[index, channel] += record.num_released
            if record.num_closing:
                self._written[index, "content"] += record.num_closing

    def end(self, request_id: str, status: int, outcome: str | None, body: bytes | None) -> None:
        CURRENT.set(None)
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._put(
            {
                **self._asked,
                "time": now.replace("+00:00", "Z"),
                "request_id": request_id,
                "policy": self._applied.policy,
                "revision": self._applied.revision,
                "guards": [{"name": name, "mode": mode} for name, mode in self._applied.guards],
                "status": status,
                "outcome": outcome,
                "answer": None if body is None else BodyDigest(len(body), digest(body))._asdict(),
                "outputs": outputs(self.seen, self.released, self._written),
                "decisions": [_listed(record) for record in self._decisions],
                "num_decisions": self._num_decisions,
            }
        )


CURRENT: ContextVar[AnswerReceipt | None] = ContextVar("receipt", default=None)
"""That of the request whose task runs."""


def hear(record: DecisionRecord) -> None:
    """Subscribes to the decisions of all requests."""
    if (receipt := CURRENT.get()) is not None:
        receipt.hear(record)


def _listed(record: DecisionRecord) -> dict[str, Any]:
    fields = {name: value for name in _DECISION if (value := getattr(record, name)) is not None}
    if not record.num_closing:
        del fields["num_closing"]
    if record.reason is not None:
        fields["reason"] = record.reason[:MAX_REASON]
    return fields
