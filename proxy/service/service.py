"""The objects that all handlers share: the current deployment, settings, state and metrics."""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable

from aiohttp import web

from engine.protocol.options import EngineConfig
from engine.turns.prompt_threads import PromptThreads
from proxy.deployment.deployment import Deployment
from proxy.deployment.deployments import Deployments
from proxy.network.tls import Certificates
from proxy.service.applied_guards import Applied
from proxy.service.approvals import Approvals
from proxy.service.audit import Audit
from proxy.service.key_refusals import KeyRefusals
from proxy.service.limit_refusals import LimitRefusals
from proxy.service.metrics import Metrics
from proxy.service.operator_side import operator_side
from proxy.service.peers import Peers
from proxy.service.quotas import Quotas
from proxy.service.rates import Rates
from proxy.service.receipt_keeping import receipt_keeping
from proxy.service.reload import Reloads
from proxy.service.running import RequestLimits, RunningRequests
from proxy.service.stored_responses import ResponseStore
from proxy.service.usage import UsageCounts
from proxy.service.users import Users
from proxy.settings.serve import ServeSettings
from proxy.storage.connect import make_state
from proxy.telemetry.feed import DecisionFeed, log_decision
from proxy.telemetry.telemetry import make_telemetry
from proxy.telemetry.traced_guard import trace_decision


class Service:
    """One server."""

    def __init__(
        self, deployment: Deployment, settings: ServeSettings, clock: Callable[[], float] = time.time
    ) -> None:
        """`settings`: those that need a restart to change. `clock`: seconds since 1970, for limits and
        usage."""
        self.settings = settings
        self.is_draining = False
        """A load balancer should send nothing more: the server is about to stop. It serves what comes."""
        self.stopping = asyncio.Event()
        """Set once no new generation is taken: the server is about to stop."""
        self.metrics = Metrics(lambda: self.deployments.all)
        self.deployments = Deployments(deployment, self.stopping.is_set, self.metrics.counts.retire)
        self.telemetry = make_telemetry(settings, self.metrics.collect, self.metrics.genai)
        self.render_metrics: Callable[[], Awaitable[bytes]] = self.metrics.render
        """Several workers replace it, to show the metrics of all."""
        self.peers = Peers()
        self.state = make_state(settings)
        self.decisions = DecisionFeed(
            keeps_withheld_text=settings.keep_withheld_text, min_held=settings.decisions_min_held
        )
        if self.telemetry.has_spans:
            self.decisions.subscribe(trace_decision)
        if settings.decision_log:
            self.decisions.subscribe(log_decision)
        self.audit = Audit(settings, self.decisions)
        self.metrics.others.append(self.audit.metrics)
        self.receipts = receipt_keeping(settings, self.decisions)
        self.metrics.others.append(self.receipts.metrics)
        self.applied = Applied(lambda: self.receipts.revision_secret or self.state.salt)
        self.names_guards = settings.guards_header or self.receipts.keeps_any
        """Whether answers name their guards in `X-Weir-Guards`."""
        self.responses = ResponseStore(settings, self.state)
        self.process = secrets.token_hex(8)
        """A name that no other process has."""
        self.usage = UsageCounts(clock, self.process)
        self.operator = operator_side(settings, self.decisions, self.deployments.policies, self.usage)
        self.requests = RunningRequests()
        self.approvals = Approvals(settings)
        self.metrics.others.append(self.approvals.metrics)
        self.peers.answers.update(self.requests.answers | self.approvals.answers)
        is_shared = settings.state is not None
        limit = settings.max_requests_per_caller
        shared = self.state if is_shared else None
        self.limits = RequestLimits(limit, shared, self.process)
        self.rates = Rates(shared, clock, self.process)
        self.quotas = Quotas(self.limits, self.rates, Users(lambda: self.state.salt, clock), self.usage)
        self.limit_refusals = LimitRefusals(self.decisions)
        self.key_refusals = KeyRefusals()
        self.remembered_bytes: Counter[str] = Counter()
        """Bytes of the conversations that sockets remember, by caller."""
        self.body_bytes: Counter[str] = Counter()
        """Bytes of the bodies of the requests in flight, by caller."""
        self.prompt_threads = PromptThreads(EngineConfig.tokenizer_pool_size)
        self.certificates = Certificates(settings)
        self.reloads = Reloads(settings, self.operator, self.certificates, self.deployments, self.applied)

    @property
    def deployment(self) -> Deployment:
        """The current one."""
        return self.deployments.current


SERVICE = web.AppKey("service", Service)
