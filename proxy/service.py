"""The objects that all handlers share: the current deployment, settings, state and metrics."""

import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager

from aiohttp import web

from engine.protocol import GenerationRequest, QueueFullError
from engine.turns.prompt_threads import PromptThreads
from hooks.pipeline.open_guard import OpenGuard
from proxy.access.quotas import Quotas
from proxy.access.rates import Rates
from proxy.access.tls import Certificates
from proxy.admin.reload import Reloads
from proxy.admin.running import RequestFacts, RunningRequest, RunningRequests
from proxy.config import ServeSettings
from proxy.decisions.feed import DecisionFeed, Subscriber
from proxy.decisions.options import DecisionOptions
from proxy.decisions.record import Asker
from proxy.decisions.writer import DecisionWriter
from proxy.errors import APIError
from proxy.metrics import Metrics
from proxy.policies.deployment import Deployment, Route
from proxy.policies.deployments import Deployments
from proxy.policies.keys import Key
from proxy.state.connect import make_state
from proxy.state.options import StateOptions
from proxy.state.responses import ResponseStore
from proxy.state.under_way import RequestLimits
from proxy.store.directory import StoredKeys
from proxy.store.options import StoreOptions
from proxy.store.store import Store
from proxy.telemetry.decision_log import log_decision
from proxy.telemetry.telemetry import make_telemetry
from proxy.telemetry.traced_guard import GuardSpan, tell_span
from proxy.workers.others import Others


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
        span = GuardSpan()
        guard = route.policy.pipeline.open(
            request,
            can_rewind=route.model.engine.info.can_rewind_for(request),
            listener=span.listener(self.decisions.listener(asker, subscriber)),
            min_held=self.decisions.min_held_for(subscriber),
        )
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

    def running(self) -> AbstractContextManager[Deployment]:
        """Marks a request as running. Gives the deployment that the request has to its end. Raises `APIError`
        503 if the server is stopping."""
        if self.draining:
            raise APIError(503, "The server is shutting down.", "server_error", retry_after=1)
        return self.deployment.running()


SERVICE = web.AppKey("service", Service)

ROUTE = web.RequestKey("route", Route)
"""The request's route. Set once the body says which model is asked for."""
