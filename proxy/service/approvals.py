"""The tool calls that wait for a person (contract 3.21).

A call is known by the digest of what the client would get. An answer names that digest, so it is about the
call that the person has read, and about no other.
"""

import asyncio
import hashlib
import logging
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple

from prometheus_client.core import Metric

from engine.protocol import GenerationRequest
from engine.protocol.stats import Histogram
from hooks.api.decision import Decision, Listener
from hooks.pipeline.ask import Question
from proxy.deployment.deployment import Route
from proxy.service.approval_webhook import Webhook
from proxy.service.peers import Answerer
from proxy.settings.serve import ServeSettings
from proxy.telemetry.families import counter, gauge, histogram

logger = logging.getLogger("weir.proxy")

WAIT_SECONDS = (1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
Outcome = Literal["approved", "refused", "expired", "withdrawn"]
"""`withdrawn`: the request ended first."""


class WaitingCall(NamedTuple):
    """A tool call that waits, as the operator sees it."""

    id: str
    request_id: str
    endpoint: str
    model: str
    """This name, the policy's, the tenant's and the key's are the configuration's."""
    policy: str
    tenant: str
    key: str
    hook: str
    reason: str
    output_index: int
    tool: str
    arguments: str
    digest: str
    asked: float
    """Seconds since 1970."""
    deadline: float

    def public(self, *, with_call: bool = True) -> dict[str, Any]:
        """`with_call`: with the tool's name and arguments, which are the model's words."""
        fields = {"object": "approval", **self._asdict(), "seconds": max(0.0, time.time() - self.asked)}
        if not with_call:
            del fields["arguments"], fields["tool"], fields["digest"]
        return fields


class PersonsAnswer(NamedTuple):
    is_approved: bool
    by: str
    """Who decided, as decisions have it: an admin key's name, `webhook`, `deadline` or `shutdown`."""


@dataclass(slots=True, eq=False)
class _Waiting:
    call: WaitingCall
    answer: asyncio.Future[PersonsAnswer]


@dataclass(frozen=True, slots=True)
class ListCalls:
    """A question to other processes: which calls wait there. The answer is an `OldestCalls`."""

    limit: int


class OldestCalls(NamedTuple):
    oldest: list[WaitingCall]
    num_waiting: int


@dataclass(frozen=True, slots=True)
class AnswerCall:
    """A question to other processes: a person has decided on a call. The answer is an `Answered`."""

    id: str
    digest: str
    answer: PersonsAnswer


Answered = Literal["answered", "other digest", "unknown"]


def digest_of(tool: str, arguments: str) -> str:
    """SHA-256 of the tool's name, a zero byte, and the arguments as the client would get them; UTF-8."""
    return hashlib.sha256(f"{tool}\0{arguments}".encode(errors="surrogatepass")).hexdigest()


class Approvals:
    """All tool calls that wait in this process."""

    def __init__(self, settings: ServeSettings) -> None:
        self._timeout = settings.approval_timeout
        self._max_waiting = settings.max_waiting_calls
        url, key = settings.approval_webhook, settings.approval_webhook_key
        self._webhook = None if url is None else Webhook(url, key, self._timeout)
        self._is_attended = bool(settings.admin_key) or url is not None
        """Whether anybody can answer."""
        self._waiting: dict[str, _Waiting] = {}
        self._is_ending = False
        self.outcomes: Counter[Outcome] = Counter()
        self.seconds = Histogram(WAIT_SECONDS)
        self.answers: dict[type, Answerer] = {ListCalls: self._list, AnswerCall: self._answer}
        """The answers of this process to the questions of its peers."""

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    async def decide(
        self, question: Question, route: Route, request: GenerationRequest, listener: Listener | None
    ) -> bool:
        """Whether a person approves a call of the request. `listener`: receives the answer as a decision."""
        answer = await self._ask(_waiting_call(question, route, request, self._timeout))
        if listener is not None:
            listener(_decision(question, request, answer))
        return answer.is_approved

    def metrics(self) -> Iterator[Metric]:
        text = "Tool calls that wait for a person."
        yield gauge("approvals_waiting", text, (), [((), self.num_waiting)])
        text = "Tool calls that a hook asked a person about: approved, refused, expired or withdrawn."
        ends = [((outcome,), n) for outcome, n in self.outcomes.items()]
        yield counter("approvals", text, ("outcome",), ends)
        text = "From the question to the person's answer, or to its end."
        yield histogram("approval_seconds", text, (), [((), self.seconds)])

    def oldest(self, limit: int) -> OldestCalls:
        """At most `limit` calls, the oldest first."""
        return OldestCalls([one.call for one in islice(self._waiting.values(), limit)], self.num_waiting)

    def answer(self, call_id: str, digest: str, answer: PersonsAnswer) -> Answered:
        """A person decides. The first answer counts."""
        found = self._waiting.get(call_id)
        if found is None or found.answer.done():
            return "unknown"
        if not secrets.compare_digest(found.call.digest.encode(), digest.encode()):
            return "other digest"
        found.answer.set_result(answer)
        return "answered"

    def end(self) -> None:
        """Refuse all calls: the server stops, and their clients get the end of their answers."""
        self._is_ending = True
        for waiting in self._waiting.values():
            if not waiting.answer.done():
                waiting.answer.set_result(PersonsAnswer(is_approved=False, by="shutdown"))

    async def aclose(self) -> None:
        if self._webhook is not None:
            await self._webhook.aclose()

    async def _ask(self, call: WaitingCall) -> PersonsAnswer:
        if not self._is_attended:
            self.outcomes["refused"] += 1
            return PersonsAnswer(is_approved=False, by="nobody can answer")
        if self._is_ending:
            self.outcomes["refused"] += 1
            return PersonsAnswer(is_approved=False, by="shutdown")
        if self.num_waiting >= self._max_waiting:
            self.outcomes["refused"] += 1
            logger.warning("too many tool calls wait for a person; one more is refused")
            return PersonsAnswer(is_approved=False, by="too many wait")
        waiting = _Waiting(call, asyncio.get_running_loop().create_future())
        self._waiting[call.id] = waiting
        outcome: Outcome = "withdrawn"
        asking = None
        try:
            async with asyncio.timeout(self._timeout):
                if self._webhook is not None:
                    work = self._ask_webhook(self._webhook, call)
                    asking = asyncio.get_running_loop().create_task(work)
                answer = await waiting.answer
            outcome = "approved" if answer.is_approved else "refused"
            return answer
        except TimeoutError:
            outcome = "expired"
            return PersonsAnswer(is_approved=False, by="deadline")
        finally:
            del self._waiting[call.id]
            self.outcomes[outcome] += 1
            self.seconds.observe(max(0.0, time.time() - call.asked))
            if asking is not None:
                asking.cancel()
                (error,) = await asyncio.gather(asking, return_exceptions=True)
                if isinstance(error, Exception):
                    logger.error("the approval webhook cannot be asked (%s)", type(error).__name__)

    async def _ask_webhook(self, webhook: Webhook, call: WaitingCall) -> None:
        """Its answer counts as a person's. One that fails leaves the call to the operator."""
        answer = await webhook.ask(call.public())
        if answer is not None:
            answered = self.answer(call.id, answer.digest, PersonsAnswer(answer.approve, answer.by))
            if answered == "other digest":
                logger.warning("the approval webhook answered about another call (approval %s)", call.id)

    async def _list(self, question: ListCalls) -> OldestCalls:
        return self.oldest(question.limit)

    async def _answer(self, question: AnswerCall) -> Answered:
        return self.answer(question.id, question.digest, question.answer)


def _waiting_call(
    question: Question, route: Route, request: GenerationRequest, timeout: float
) -> WaitingCall:
    call, now = question.call, time.time()
    assert call.tool_call is not None
    return WaitingCall(
        id=f"approval-{secrets.token_hex(12)}",
        request_id=request.request_id,
        endpoint=request.endpoint,
        model=route.model.name,
        policy=route.policy.name,
        tenant=route.key.tenant,
        key=route.key.name,
        hook=question.hook,
        reason=question.reason,
        output_index=call.index,
        tool=call.tool_call.name,
        arguments=call.text,
        digest=digest_of(call.tool_call.name, call.text),
        asked=now,
        deadline=now + timeout,
    )


def _decision(question: Question, request: GenerationRequest, answer: PersonsAnswer) -> Decision:
    call = question.call
    assert call.tool_call is not None
    return Decision(
        request_id=request.request_id,
        user=request.user,
        model=request.model,
        endpoint=request.endpoint,
        hook=question.hook,
        hook_index=question.hook_index,
        action="approve" if answer.is_approved else "deny",
        reason=answer.by,
        output_index=call.index,
        channel="tool_call",
        tool_name=question.tool_name,
        call_index=call.tool_call.index,
        is_own_tool=question.is_own_tool,
        num_withheld=0 if answer.is_approved else len(call.text),
    )
