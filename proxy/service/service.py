"""The objects that all handlers share: the current deployment, settings, state and metrics."""

import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager

from aiohttp import web

from engine.protocol import GenerationRequest, QueueFullError
from engine.protocol.tracing import CURRENT_SPAN, NO_SPAN
from engine.turns.prompt_threads import PromptThreads
from hooks.pipeline.open_guard import OpenGuard
from proxy.deployment.deployment import Deployment, Route
from proxy.deployment.deployments import Deployments
from proxy.deployment.keys import Key
from proxy.deployment.stored_keys import StoredKeys
from proxy.network.tls import Certificates
from proxy.service.decision_writer import DecisionWriter
from proxy.service.metrics import Metrics
from proxy.service.peers import Others
from proxy.service.quotas import Quotas
from proxy.service.rates import Rates
from proxy.service.reload import Reloads
from proxy.service.request_limits import RequestLimits
from proxy.service.running import RequestFacts, RunningRequest, RunningRequests
from proxy.service.stored_responses import ResponseStore
from proxy.settings.serve import ServeSettings
from proxy.settings.storage import DecisionOptions, StateOptions, StoreOptions
from proxy.storage.operator.decision_record import Asker
from proxy.storage.operator.store import Store
from proxy.storage.shared.connect import make_state
from proxy.telemetry.decision_log import log_decision
from proxy.telemetry.feed import DecisionFeed, Subscriber
from proxy.telemetry.telemetry import make_telemetry
from proxy.telemetry.traced_guard import GuardSpan, tell_span
from proxy.wire.errors import APIError


class Service:
    """One server."""

    def __init__(
        self, deployment: Deployment, settings: ServeSettings, clock: Callable[[], float] = time.time
    ) -> None:
        """`settings`: those that need a restart to change. `clock`: seconds since 1970, for the limits of a
        minute."""
        self.settings = settings
        self.metrics = Metrics(lambda: self.deployments.all)
        self.deployments = Deployments(deployment, lambda: self.draining, self.metrics.counts.retire)
        self.telemetry = make_telemetry(settings, self.metrics.collect)
        self.render_metrics: Callable[[], Awaitable[bytes]] = self.metrics.render
        """Several workers replace it, to show the metrics of all."""
        self.others = Others()
        self.state = make_state(settings.options(StateOptions))
        self.decisions = DecisionFeed(
            keeps_withheld_text=settings.keep_withheld_text, min_held=settings.decisions_min_held
        )
        if self.telemetry.has_spans:
            self.decisions.subscribe(tell_span)
        if settings.decision_log:
            self.decisions.subscribe(log_decision)
        self.responses = ResponseStore(settings, self.state)
        self.store = Store(settings.options(StoreOptions), has_admin_key=bool(settings.admin_key))
        self.decision_writer = DecisionWriter(
            self.store, self.decisions, settings.options(DecisionOptions), self.deployments.policies
        )
        self.made_keys = StoredKeys(self.store)
        self.requests = RunningRequests()
        self.others.answers.update(self.requests.answers)
        self.process = secrets.token_hex(8)
        """A name that no other process has."""
        is_shared = settings.state is not None
        limit = settings.max_requests_per_caller
        shared = self.state if is_shared else None
        self.limits = RequestLimits(limit, shared, self.process)
        self.rates = Rates(shared, clock)
        self.quotas = Quotas(self.limits, self.rates)
        self.body_bytes: Counter[str] = Counter()
        """Bytes of the bodies of the requests in flight, by caller."""
        self.prompt_threads = PromptThreads(settings.tokenizer_pool_size)
        self.draining = False
        """No new generation is taken: the server is about to stop."""
        self.certificates = Certificates(settings)
        self.reloads = Reloads(settings, self.store, self.certificates, self.deployments)

    @property
    def deployment(self) -> Deployment:
        """The current one."""
        return self.deployments.current

    def find_key(self, digest: str) -> Key | None:
        """The key with this digest (`digest_of`)."""
        return self.made_keys.find(digest) or self.deployment.keys.get(digest)

    def needs_keys(self) -> bool:
        """Whether requests need a key."""
        return self.made_keys.has_any or bool(self.deployment.keys)

    def check_room(self, deployment: Deployment, endpoint: str, key: Key, caller: str) -> None:
        """Raise `QueueFullError` if no engine takes a request of this caller now. Checked before a body is
        read, so that a caller with a full queue costs the others little."""
        try:
            deployment.check_room(key, caller)
        except QueueFullError:
            model = next((model.name for model in deployment.models_of(key)), "")
            with self.metrics.request(endpoint, model, key.tenant):
                raise

    @asynccontextmanager
    async def opened(
        self, route: Route, request: GenerationRequest, subscriber: Subscriber | None = None
    ) -> AsyncIterator[OpenGuard]:
        """The request's guard, closed at the end. `subscriber`: hears this request's decisions. Raises
        `RequestError` for a hook that it may not name."""
        asker = Asker(route.key.tenant, route.key.name, route.policy.name, route.model.name)
        listener = self.decisions.listener(asker, subscriber)
        span = None if CURRENT_SPAN.get() is NO_SPAN else GuardSpan()
        guard = route.policy.pipeline.open(
            request,
            can_rewind=route.model.engine.info.can_rewind_for(request),
            listener=listener if span is None else span.listener(listener),
            min_held=self.decisions.min_held if subscriber is None else 0.0,
        )
        if span is not None:
            guard = span.traced(guard)
        try:
            yield guard
        finally:
            await guard.close()

    def begin(self, route: Route, request: GenerationRequest) -> RunningRequest:
        """Lets the operator see and cancel the request, while it is entered."""
        facts = RequestFacts(
            id=request.request_id,
            endpoint=request.endpoint,
            model=route.model.name,
            policy=route.policy.name,
            tenant=route.key.tenant,
            key=route.key.name,
            stream=request.stream,
            started=time.time(),
        )
        return self.requests.begin(facts)

    def running(self, deployment: Deployment | None = None) -> AbstractContextManager[Deployment]:
        """Marks a request as running in `deployment` (None: the current one), to its end. Raises `APIError`
        503 if the server is stopping."""
        if self.draining:
            raise APIError(503, "The server is shutting down.", "server_error", retry_after=1)
        return (deployment or self.deployment).running()


SERVICE = web.AppKey("service", Service)
