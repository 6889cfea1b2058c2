"""Takes an HTTP request to an engine. There is no other path to one (contract 1.3).

`admitted` reads the body, finds the model and the policy, holds the request to its limits, and settles all
of it however the request ends. Its `Exchange` opens the hooks' guard, and asks the engine for what the hooks
have admitted. No other module under `proxy.http` touches an engine.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any, Generic, ParamSpec, TypeVar

from aiohttp import web

from engine.parsers import Parsing
from engine.protocol import Delta, GenerationRequest, ModelInfo, QueueFullError, RequestError, Tokenizer
from engine.protocol.documents import with_documents_as_text
from engine.protocol.fields.asked import steers_end
from engine.protocol.fields.names import LENGTH_LIMITS
from engine.protocol.fields.support import FieldSupport
from engine.protocol.processor_specs import NamedProcessorSpec
from engine.protocol.prompt_size import text_size
from engine.protocol.relay import counted, relayed
from engine.protocol.tracing import CURRENT_SPAN, NO_SPAN
from engine.sampling.logits_processors.names import OTHER_FIELDS, PARAMETER_FIELDS
from engine.streams.feeding import feed_given
from engine.streams.flow import Stage, StagedFlow
from engine.streams.rewindable import Rewindable
from engine.text.chat_echo import ChatEcho, echoed_text
from hooks.api.decision import Listener
from hooks.pipeline.admission import RefusedError
from hooks.pipeline.ask import Question
from hooks.pipeline.driver import Guarding, admit, in_own_words
from hooks.pipeline.open_guard import OpenGuard, PassThrough
from proxy.deployment.deployment import Route
from proxy.http.access.fields import F, read_fields
from proxy.http.access.operator import has_admin_key, is_operator
from proxy.http.door import ARRIVAL, Arrival
from proxy.service.metrics import RequestMetrics
from proxy.service.prompts import check_prompts
from proxy.service.quotas import LimitError
from proxy.service.running import RunningRequest
from proxy.service.service import Service
from proxy.service.spending import Spending, estimated_tokens
from proxy.storage.records import Account, Asker
from proxy.telemetry.traced_guard import GuardSpan
from proxy.wire.answer_decisions import AnswerDecisions, Telling
from proxy.wire.errors import APIError
from proxy.wire.messages.fields import CountFields

DECISIONS_HEADER = "X-Weir-Decisions"
GUARDS_HEADER = "X-Weir-Guards"


T = TypeVar("T")
P = ParamSpec("P")
Make = Callable[[Arrival, F, Route], GenerationRequest | Awaitable[GenerationRequest]]
"""Makes the request of the body."""


@dataclass(slots=True, eq=False)
class Exchange(Generic[F]):
    """One admitted request: its caller, its fields, and the counts to settle at its end."""

    arrival: Arrival
    fields: F
    route: Route
    request: GenerationRequest
    """If it is counted, within the limits of its policy."""
    support: FieldSupport
    """The engine's treatment of each field."""
    tokenizer: Tokenizer | None
    """The engine's."""
    spending: Spending
    running: RunningRequest | None
    """None: the request is not counted as one to a model, and the operator neither sees nor cancels it."""
    guard: OpenGuard | None = None
    """The request's guard, once it is open. It is closed with the exchange."""
    _listener: Listener | None = None
    """Receives the decisions of the request."""

    @property
    def service(self) -> Service:
        return self.arrival.service

    @property
    def metrics(self) -> RequestMetrics:
        """Raises `RuntimeError` for a request that is not counted as one to a model."""
        if self.arrival.metrics is None:
            raise RuntimeError("a request to a model is admitted with its endpoint")
        return self.arrival.metrics

    @property
    def info(self) -> ModelInfo:
        return self.route.model.engine.info

    async def flow(self) -> StagedFlow:
        """The way of the answer's deltas: admit, generate, rewind, parse, guard.

        Run it with the last stage. The hooks admit the prompt here, also that of a request that does not
        generate, for which no engine is asked: it may be stored. Raises `RuntimeError` for a request that is
        not counted: nothing has limited it.
        """
        model, metrics = self.route.model, self.metrics
        guard = self._opened()
        admitted = await self._admit(guard)
        metrics.on_usage = partial(self.spending.settle, self.request)
        receipt = self.arrival.receipt
        if not isinstance(admitted, GenerationRequest):
            answered = [] if receipt is None else receipt.around([], is_refused=True)
            return StagedFlow(partial(feed_given, admitted), guard=answered)
        if not admitted.generates:
            return StagedFlow(partial(feed_given, [Delta(finish_reason="stop")]))
        stages: list[Stage] = []
        if admitted.echo and (text := echoed_text(admitted)):
            stages.append(ChatEcho(text))
        if guard.may_rewind:
            stages.append(Rewindable())
        may_parse = model.parsers is not None or admitted.tools
        if may_parse and (parsers := model.parsers_for(admitted)) is not None:
            stages.append(Parsing(parsers, admitted, self.tokenizer))
        guarding: list[Stage] = [] if isinstance(guard, PassThrough) else [Guarding(guard, self._decide)]
        if self.arrival.decisions is not None:
            guarding.insert(0, Telling(self.arrival.decisions, guard))
        if receipt is not None:
            guarding = receipt.around(guarding)
        flow = StagedFlow(
            partial(_in_own_words, guard, partial(model.engine_feed, admitted)), stages, guarding
        )
        metrics.on_usage = lambda usage: self.spending.settle(self.request, usage, flow.num_characters)
        return flow

    async def _decide(self, question: Question) -> bool:
        """Have a person decide on a tool call of the request."""
        asked, index, waited = perf_counter(), question.call.index, self.metrics.waited
        try:
            return await self.service.approvals.decide(question, self.route, self.request, self._listener)
        finally:
            waited[index] = waited.get(index, 0.0) + perf_counter() - asked

    def spend_estimate(self) -> None:
        """Count the prompt's tokens, about, for a request without usage."""
        self.spending.settle(self.request, None)

    def listener(self) -> Listener | None:
        """Passes decisions on to the operator, as ones about this request. None: the operator does not
        listen."""
        publish = self.service.decisions.listener(_asker(self.service, self.route))
        if publish is None:
            return None
        request_id = self.request.request_id  # a listener may outlive the exchange, and keeps none of it
        return lambda decision: publish(replace(decision, request_id=request_id))

    def has_hooks(self) -> bool:
        """Whether hooks must see all text before the caller."""
        return not isinstance(self._opened(), PassThrough)

    def withholds_alternatives(self) -> bool:
        """Whether a hook withholds the top alternatives of tokens."""
        return self._opened().withholds_alternatives

    async def ask_upstream(
        self, path: str, body: Callable[[GenerationRequest], Mapping[str, Any]]
    ) -> tuple[GenerationRequest, bytes]:
        """The request as hooks let it go on, with the fields that the upstream gets, and the upstream's
        answer, which no hook has seen. `body`: the upstream's. Raises as `relayed` does."""
        guard, admitted = await self._admitted_or_refused()
        admitted = replace(admitted, extra=self.support.relayed_of(admitted.extra))
        return admitted, await _in_own_words(
            guard, relayed, self.route.model.engine, admitted, path, body(admitted)
        )

    async def count_tokens(self) -> tuple[int, bool]:
        """The tokens of the prompt, as the hooks let it go on, and whether that is an estimate: nothing here
        can count them."""
        guard, admitted = await self._admitted_or_refused()
        if self.tokenizer is not None:
            encode, size = partial(self.tokenizer.encode_chat, admitted), text_size(admitted.messages)
            ids = await self.service.prompt_threads.run(encode, size=size, caller=admitted.caller)
            return len(ids), False
        num_tokens = await _in_own_words(guard, counted, self.route.model.engine, admitted)
        return (estimated_tokens(admitted) or 1, True) if num_tokens is None else (num_tokens, False)

    @asynccontextmanager
    async def judged(self, request: GenerationRequest, listener: Listener) -> AsyncIterator[OpenGuard]:
        """A guard for another request than this one, without an engine. A rewind acts as a terminate."""
        guard = self.opened(request, listener)
        try:
            yield guard
        finally:
            await guard.close()

    def opened(
        self, request: GenerationRequest, listener: Listener | None, num_repeated: int = 0
    ) -> OpenGuard:
        """As `judged`, for a guard that outlives this request. Its caller closes it. `num_repeated`: as
        `GuardFactory.open` has it."""
        check_prompts(request, self.info)
        pipeline = self.route.policy.pipeline
        return pipeline.open(request, listener=listener, num_repeated=num_repeated)

    def _opened(self) -> OpenGuard:
        """The request's guard. Raises `RequestError` for a hook that the
        request may not name, and for a prompt that is too long."""
        if self.guard is not None:
            return self.guard
        route, request, feed = self.route, self.request, self.arrival.service.decisions
        info, decisions = route.model.engine.info, self.arrival.decisions
        is_heard = feed.subscribers or decisions is not None
        listener = feed.listener(_asker(self.service, route), decisions) if is_heard else None
        span = None if CURRENT_SPAN.get() is NO_SPAN else GuardSpan()
        if span is not None:
            listener = span.listener(listener)
        self._listener = listener
        guard = route.policy.pipeline.open(
            request,
            can_rewind=info.can_rewind and info.can_rewind_for(request),
            can_ask=True,
            listener=listener,
            min_held=feed.min_held if decisions is None else 0.0,
        )
        self.guard = guard = guard if span is None else span.traced(guard)
        if info.max_prompt_bytes is not None:
            check_prompts(request, info)
        return guard

    async def _admit(self, guard: OpenGuard) -> GenerationRequest | list[Delta]:
        """As `admit`. The request is for the engine."""
        try:
            admitted = await admit(guard, self.tokenizer)
        except RefusedError as error:
            raise error.named_by(self.fields.place_of) from None
        if not isinstance(admitted, GenerationRequest):
            return admitted
        if isinstance(self.fields, CountFields):
            # Before documents become text, which would look like a hook's change.
            admitted = with_documents_as_text(self.fields.for_engine(self.request, admitted))
        return admitted

    async def _admitted_or_refused(self) -> tuple[OpenGuard, GenerationRequest]:
        """The request as hooks let it go on. Raises `RequestError` if a hook answered in the engine's place:
        the answer here has no words."""
        guard = self._opened()
        admitted = await self._admit(guard)
        if isinstance(admitted, GenerationRequest):
            return guard, admitted
        raise RequestError("The prompt was refused.", param=self.request.prompt_field, code="content_filter")


@asynccontextmanager
async def admitted(
    http: web.Request, kind: type[F], make: Make[F], *, endpoint: str | None = None, names_model: bool = True
) -> AsyncIterator[Exchange[F]]:
    """Admits one request. Leaves counts, quotas, turns and the log line settled, however the request ends.

    `kind`: the shape of the body, of which `make` makes the request. `endpoint`: the name in metrics; None:
    the request cannot generate, and neither metrics nor the log count it as one to a model. `names_model`:
    whether the body names a served model. A counted request to a model needs an engine with room. Raises
    `APIError` 400, 403, 413, 415, 429 or 503, `QueueFullError`, `RequestError` and `ValidationError`.
    """
    arrival = http[ARRIVAL]
    service, deployment, key = arrival.service, arrival.deployment, arrival.key
    if endpoint is not None:
        service.receipts.check()
    if endpoint is not None and names_model:
        # Checked before the body is read, so that a caller with a full queue costs its peers little.
        try:
            deployment.check_room(key, arrival.owner.caller)
        except QueueFullError:
            model = next((model.name for model in deployment.models_of(key)), "")
            with service.metrics.request(endpoint, model, key.tenant):
                raise
    fields = await read_fields(arrival, kind, names_model=names_model)
    route = arrival.route = deployment.route(key, fields.model if names_model else None)
    engine, is_counted = route.model.engine, endpoint is not None
    counts = service.metrics.request(endpoint, route.model.name, key.tenant) if endpoint else nullcontext()
    with counts as arrival.metrics:
        made = make(arrival, fields, route)
        request = made if isinstance(made, GenerationRequest) else await made
        if DECISIONS_HEADER in http.headers:
            arrival.decisions = asked_decisions(http)
        if is_counted:
            if steers_end(request, engine.fields, engine.info):
                request = replace(request, steers_end=True)
            if route.limited or route.per_user or route.policy.rules_processors:
                request = under_policy(route, request)
            arrival.begin(request)
        limited, used_by = (
            service.quotas.subjects(route, request.user),
            _account(route) if is_counted else None,
        )
        try:
            async with service.quotas.admitted(limited, arrival.headers, used_by) as spending:
                if is_counted and service.names_guards:
                    applied = service.applied.guards(route.policy, request.hooks)
                    arrival.receipt = service.receipts.begin(route, request, arrival.body_digest, applied)
                    arrival.headers[GUARDS_HEADER] = applied.header
                with service.requests.running(route, request) if is_counted else nullcontext() as running:
                    exchange = Exchange(
                        arrival, fields, route, request, engine.fields, engine.tokenizer, spending, running
                    )
                    try:
                        yield exchange
                    finally:
                        if exchange.guard is not None:
                            await exchange.guard.close()
        except LimitError as error:
            service.limit_refusals.report(error, _asker(service, route), request)
            raise


def _account(route: Route) -> Account:
    return Account(route.key.tenant, route.key.name, route.policy.name, route.model.name)


def _asker(service: Service, route: Route) -> Asker:
    key, policy = route.key, route.policy
    return Asker(key.tenant, key.name, policy.name, service.applied.revision(policy), route.model.name)


def under_policy(route: Route, request: GenerationRequest) -> GenerationRequest:
    """The request within the limits of its key and its policy, with the policy's logits processors. Raises
    `RequestError` for a request that exceeds them, or names a processor that is not allowed."""
    allowed = route.policy.settings.allowed_logits_processors
    if allowed is not None:
        _check_processors(request, allowed)
    added = route.policy.logits_processors
    limited = route.limited if route.per_user is None else (*route.limited, route.per_user)
    if not limited and not added:
        return request
    limits = (subject.limits.max_tokens for subject in limited)
    limit = min((one for one in limits if one is not None), default=None)
    sampling = request.sampling
    if limit is not None:
        wanted = limit if sampling.max_tokens is None else sampling.max_tokens
        # An endpoint's default gives way to the limit.
        name = next((name for name in LENGTH_LIMITS if name in request.given), None)
        if wanted > limit and name is not None:
            raise RequestError(f"{name} must be at most {limit} here.", param=name)
        sampling = replace(sampling, max_tokens=min(wanted, limit))
    return replace(
        request, sampling=replace(sampling, logits_processors=(*sampling.logits_processors, *added))
    )


def _check_processors(request: GenerationRequest, allowed: list[str]) -> None:
    for i, spec in enumerate(request.sampling.logits_processors):
        if not isinstance(spec, NamedProcessorSpec) or spec.name not in allowed:
            name = f"logits_processors[{i}].name"
            reason = "this logits processor is not one that a request may name"
            raise RequestError(f"{name}: {reason}.", param=name)
    # These fields may choose a processor by its parameters alone.
    for field in (*OTHER_FIELDS, *PARAMETER_FIELDS):
        if request.extra.get(field):
            raise RequestError(f"{field}: name logits processors in logits_processors.", param=field)


async def _in_own_words(
    guard: OpenGuard, ask: Callable[P, Awaitable[T]], *args: P.args, **others: P.kwargs
) -> T:
    """The engine's answer. Raises its errors, in Weir's words where hooks must see all text first."""
    try:
        return await ask(*args, **others)
    except (RequestError, QueueFullError) as error:
        raise in_own_words(error, guard) from None


def asked_decisions(http: web.Request) -> AnswerDecisions | None:
    """The decisions to put into the answer of a request with the header; None if it asks for none. Raises
    `APIError` 403 if it asks and is not the operator's, and 400 for another value of the header."""
    value = http.headers[DECISIONS_HEADER].strip().lower()
    if value == "false":
        return None
    if value != "true":
        raise APIError(400, f"{DECISIONS_HEADER}: the value is true or false.", param=DECISIONS_HEADER)
    if not is_operator(http):
        reason = f"{DECISIONS_HEADER}: only the operator of this server sees what its hooks decide."
        raise APIError(403, reason, "permission_error", param=DECISIONS_HEADER)
    return AnswerDecisions(with_text=has_admin_key(http))
