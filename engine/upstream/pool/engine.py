"""Several engines as one. A request gets an answer while any of them can give it."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from engine.protocol import Deltas, Engine, EngineError, EngineStats, GenerationRequest, ModelInfo, Tokenizer
from engine.protocol.fields.support import FieldSupport
from engine.protocol.flow import Flow
from engine.protocol.relay import counted, relayed
from engine.protocol.tracing import current
from engine.streams.feeding import feed, iterated
from engine.streams.flow import StagedFlow
from engine.upstream.pool.health import HealthChecks
from engine.upstream.pool.replica import Attempt, Replica
from engine.upstream.pool.route import Route, may_retry
from engine.upstream.pool.routing import PrefixAffinity, Routing
from engine.upstream.request_tracker import RequestTracker
from engine.upstream.totals import info_of, stats_of

T = TypeVar("T")


class PoolEngine:
    """Sends each request to one of its replicas, and to another one if that one fails before its first delta.

    After the first delta, hooks may have seen text of this answer. Then a failure ends the request: the pool
    never continues an answer with another engine's words.

    `first_token_timeout`: seconds that a replica has for its first delta (None: any time). `retries`: most
    other replicas that a request is sent to. `health_interval`: seconds between two health checks of a
    replica (None: no checks). A pool of one has no timeout, and checks only while something is wrong.
    `tokenizer`: of the model that all replicas serve (None: theirs).

    Raises `ValueError` for replicas of one name.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        *,
        routing: Routing | None = None,
        first_token_timeout: float | None = None,
        retries: int = 2,
        health_interval: float | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.replicas = {replica.name: replica for replica in replicas}
        if not replicas:
            raise ValueError("a pool needs at least one upstream")
        for name, number in Counter(replica.name for replica in replicas).items():
            if number > 1:
                raise ValueError(f"two upstreams are called {name}: give each a name of its own")
        self._routing = routing or PrefixAffinity()
        self._first_token_timeout = first_token_timeout if len(replicas) > 1 else None
        self._retries = retries
        self._health = HealthChecks(replicas, health_interval)
        self._tokenizer = tokenizer
        self._requests = RequestTracker()
        self._infos: list[ModelInfo] = []
        self._info = ModelInfo()

    @property
    def info(self) -> ModelInfo:
        infos = [replica.engine.info for replica in self.replicas.values()]
        if infos != self._infos:
            self._infos, self._info = infos, info_of(infos)
        return self._info

    @property
    def fields(self) -> FieldSupport:
        """All replicas are engines of one kind."""
        return next(iter(self.replicas.values())).engine.fields

    @property
    def tokenizer(self) -> Tokenizer | None:
        return self._tokenizer or next(iter(self.replicas.values())).engine.tokenizer

    async def start(self) -> None:
        """Start all engines. Raises the error of any of them."""
        await asyncio.gather(*(replica.engine.start() for replica in self.replicas.values()))
        self._health.start()

    def generate(self, request: GenerationRequest) -> Deltas:
        return iterated(StagedFlow(partial(self.feed, request)))

    async def feed(self, request: GenerationRequest, flow: Flow) -> None:
        self._requests.check()
        route = Route(self.replicas.values(), self._routing, request, self._retries)
        attempt = route.first()
        while True:
            try:
                with attempt, current(attempt.span):  # the call of the upstream begins here
                    await self._feed(request, flow, route, attempt)
                    return
            except EngineError as error:
                attempt = self._following(route, attempt, error)

    async def _feed(self, request: GenerationRequest, flow: Flow, route: Route, attempt: Attempt) -> None:
        """Feed one replica's answer. It has limited time for its first delta. An answer with logprobs of its
        prompt comes as a whole."""
        is_whole = request.sampling.prompt_logprobs is not None
        try:
            async with asyncio.timeout(None if is_whole else self._first_token_timeout) as limit:

                def begin() -> None:
                    limit.reschedule(None)
                    route.has_begun(attempt)

                flow.on_first = begin
                await feed(attempt.engine, request, flow)
                if not attempt.has_begun:  # an empty stream
                    route.has_begun(attempt)
        except TimeoutError as error:
            raise EngineError("The upstream engine did not answer in time.", status=504) from error

    async def relay(self, request: GenerationRequest, path: str, fields: Mapping[str, Any]) -> bytes:
        return await self._ask(request, lambda engine: relayed(engine, request, path, fields))

    async def count_tokens(self, request: GenerationRequest) -> int:
        return await self._ask(request, lambda engine: counted(engine, request))

    async def _ask(self, request: GenerationRequest, ask: Callable[[Engine], Awaitable[T]]) -> T:
        """The answer of the first replica that does not fail."""
        self._requests.check()
        route = Route(self.replicas.values(), self._routing, request, self._retries)
        attempt = route.first()
        while True:
            try:
                with attempt, current(attempt.span):
                    answer = await ask(attempt.engine)
                    route.has_begun(attempt)
                    return answer
            except EngineError as error:
                attempt = self._following(route, attempt, error)

    def drain(self, name: str) -> None:
        """Give the replica no new request; those that run continue. Raises `KeyError` for an unknown name."""
        self.replicas[name].is_drained = True

    def resume(self, name: str) -> None:
        """Give the replica requests again. Raises `KeyError` for an unknown name."""
        self.replicas[name].is_drained = False

    def stats(self) -> EngineStats:
        """The sums over all replicas, and each one's own counts in `replicas`."""
        replicas = self.replicas.values()
        own = {replica.name: replica.stats() for replica in replicas}
        return stats_of([replica.engine.stats() for replica in replicas], own)

    def check_room(self, caller: str) -> None:
        """Raise `QueueFullError` if this caller may not add a request now, at any replica."""
        refusals = [replica.refusal(caller) for replica in self.replicas.values()]
        if all(refusals):
            raise next(refusal for refusal in refusals if refusal)

    def check_health(self) -> None:
        """Raise `EngineError` if no replica can serve."""
        self._requests.check()
        if not any(replica.can_serve for replica in self.replicas.values()):
            raise EngineError("No upstream engine can serve now.", status=503)

    async def aclose(self) -> None:
        self._requests.close()
        await self._health.aclose()
        await asyncio.gather(*(replica.engine.aclose() for replica in self.replicas.values()))

    def _following(self, route: Route, attempt: Attempt, error: EngineError) -> Attempt:
        """Another attempt at the request on which this one failed. Raises `error` if no attempt is left."""
        self._requests.check()
        following = None if attempt.has_begun or not may_retry(error) else route.next()
        if following is None:
            raise error
        attempt.retry()
        return following
