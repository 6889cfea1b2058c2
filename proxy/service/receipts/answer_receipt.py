"""The receipt of one answer: what is known when it begins, what its hooks decide, and how it ends."""

import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from engine.protocol import Channel, GenerationRequest
from engine.streams.flow import Stage
from proxy import __version__
from proxy.deployment.deployment import Route
from proxy.service.applied_guards import AppliedGuards
from proxy.service.receipt_keeping import BodyDigest, body_digest
from proxy.service.receipts.texts import Place, ReleasedTexts, SeenTexts, outputs
from proxy.storage.records import MAX_NAME, DecisionRecord

VERSION = 1
"""The version of the fields."""
MAX_DECISIONS = 1000
"""Decisions that a receipt lists. It counts all."""
MAX_REASON = 1000
"""Characters kept of a decision's reason."""
_DECISION = (
    *("hook", "action", "reason", "mode", "output_index", "channel", "tool_name", "offset"),
    *("num_withheld", "num_released", "num_closing", "num_judged", "num_unjudged", "max_unjudged"),
)


class AnswerReceipt:
    """Implements `Receipt`. The writer's thread makes its fields."""

    __slots__ = (
        *("_applied", "_body", "_decisions", "_num_decisions", "_outcome", "_prompt", "_put", "_request"),
        *("_request_id", "_route", "_status", "_time", "_released", "_seen", "_written"),
    )

    def __init__(
        self,
        route: Route,
        request: GenerationRequest,
        prompt: BodyDigest | None,
        applied: AppliedGuards,
        put: "Callable[[AnswerReceipt], None]",
    ) -> None:
        """`put`: takes the receipt once the answer has ended."""
        self._seen: SeenTexts | None = None
        self._released = ReleasedTexts()
        self._route, self._request, self._prompt, self._applied = route, request, prompt, applied
        self._put = put
        self._decisions: list[DecisionRecord] = []
        self._num_decisions = 0
        self._written: dict[Place, int] = {}
        CURRENT.set(self)

    def around(self, guarding: Sequence[Stage], *, is_refused: bool = False) -> list[Stage]:
        if not (guarding or is_refused):
            return [self._released]  # what is released is what the engine gave
        self._seen = SeenTexts()
        return [self._released] if is_refused else [self._seen, *guarding, self._released]

    def hear(self, record: DecisionRecord) -> None:
        """Holds are not listed: the text left later, or it is counted as withheld."""
        if record.action == "hold":
            return
        self._num_decisions += 1
        if self._num_decisions <= MAX_DECISIONS:
            self._decisions.append(record)
        index, channel = record.output_index, record.channel
        if record.mode == "enforce" and index is not None and channel != "prompt":
            self._write(index, channel, record.num_released)
            self._write(index, "content", record.num_closing or 0)

    def _write(self, index: int, channel: Channel, num_written: int) -> None:
        if num_written:
            self._written[index, channel] = self._written.get((index, channel), 0) + num_written

    def end(self, request_id: str, status: int, outcome: str | None, body: bytes | None) -> None:
        CURRENT.set(None)
        self._time = time.time()
        self._request_id, self._status, self._outcome, self._body = request_id, status, outcome, body
        self._put(self)

    def fields(self) -> dict[str, Any]:
        """The signed fields, without the place in the chain. The answer has ended."""
        request, route, body = self._request, self._route, self._body
        moment = datetime.fromtimestamp(self._time, UTC).isoformat(timespec="milliseconds")
        return {
            "version": VERSION,
            "weir": __version__,
            "time": moment.replace("+00:00", "Z"),
            "request_id": self._request_id,
            "answer_id": request.request_id,
            "endpoint": request.endpoint,
            "model": route.model.name,
            "stream": request.stream,
            "tenant": route.key.tenant,
            "key": route.key.name,
            "user": request.user and request.user[:MAX_NAME],
            "policy": self._applied.policy,
            "revision": self._applied.revision,
            "guards": self._applied.guards,
            "status": self._status,
            "outcome": self._outcome,
            "prompt": None if self._prompt is None else self._prompt._asdict(),
            "answer": None if body is None else body_digest(body)._asdict(),
            "outputs": outputs(self._seen, self._released, self._written),
            "decisions": [_listed(record) for record in self._decisions],
            "num_decisions": self._num_decisions,
        }


CURRENT: ContextVar[AnswerReceipt | None] = ContextVar("receipt", default=None)
"""The receipt of the request whose task runs."""


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
