"""Several engines as one. A request gets an answer while any of them can give it."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

from engine.protocol import (
    Deltas,
    EngineError,
    EngineStats,
    GenerationRequest,
    ModelInfo,
    QueueFullError,
    Tokenizer,
)
from engine.protocol.flow import Flow
from engine.protocol.relay import counted, relayed
from engine.streams.feeding import iterated
from engine.streams.flow import StagedFlow
from engine.upstream.pool.health import HealthChecks
from engine.upstream.pool.replica import Attempt, Replica, all_busy, attempts, may_retry
from engine.upstream.pool.routing import PrefixAffinity, Routing
from engine.upstream.request_tracker import RequestTracker
from engine.upstream.totals import info_of, stats_of

T = TypeVar("T")

_info_of = attrgetter("engine.info")


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
        self._replicas = replicas
        self._routing = routing or PrefixAffinity()
        self._first_token_timeout = first_token_timeout if len(replicas) > 1 else None
        self._retries = retries
        self._health = HealthChecks(replicas, health_interval)
        self._requests = RequestTracker()
        self._infos: list[ModelInfo] = []
        self._info = ModelInfo()
        # All replicas are engines of one kind.
        self.fields = replicas[0].engine.fields
        self.tokenizer = tokenizer or replicas[0].engine.tokenizer

    @property
    def info(self) -> ModelInfo:
        infos = [*map(_info_of, self._replicas)]
        if infos != self._infos:
            self._infos, self._info = infos, info_of(infos)
        return self._info

    async def start(self) -> None:
        """Start all engines. Raises the error of any of them."""
        await asyncio.gather(*(replica.engine.start() for replica in self.replicas.values()))
        self._health.start()

    def generate(self, request: GenerationRequest) -> Deltas:
        return iterated(StagedFlow(partial(self.feed, request)))

    async def feed(self, request: GenerationRequest, flow: Flow) -> None:
        await self._ask(request, partial(self._feed, request, flow))

    async def _feed(self, request: GenerationRequest, flow: Flow, attempt: Attempt) -> None:
        """Feed one replica's answer. It has limited time for its first delta. An answer with logprobs of its
        prompt comes as a whole."""
        is_whole = request.sampling.prompt_logprobs is not None
        seconds = None if is_whole else self._first_token_timeout
        flow.on_first = attempt.begin
        try:
            async with nullcontext() if seconds is None else asyncio.timeout(seconds) as attempt.limit:
                await attempt.replica.feed(request, flow)
                if not attempt.has_begun:  # an empty stream
                    attempt.begin()
        except TimeoutError as error:
            raise EngineError("The upstream engine did not answer in time.", status=504) from error

    async def relay(self, request: GenerationRequest, path: str, fields: Mapping[str, Any]) -> bytes:
        return await self._ask(
            request, lambda attempt: relayed(attempt.replica.engine, request, path, fields)
        )

    async def count_tokens(self, request: GenerationRequest) -> int | None:
        return await self._ask(request, lambda attempt: counted(attempt.replica.engine, request))

    async def _ask(self, request: GenerationRequest, ask: Callable[[Attempt], Awaitable[T]]) -> T:
        """The answer of the first replica that does not fail."""
        self._requests.check()
        following = attempts(self._replicas, self._routing, request, self._retries)
        attempt = next(following)
        while True:
            try:
                with attempt:
                    answer = await ask(attempt)
                    if not attempt.has_begun:  # it is no stream
                        attempt.begin()
                    return answer
            except EngineError as error:
                self._requests.check()
                other = None if attempt.has_begun or not may_retry(error) else next(following, None)
                if other is None:
                    raise
                attempt = other

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
        refusal: QueueFullError | None = None
        for replica in self._replicas:
            if replica.max_connections is not None and replica.outstanding >= replica.max_connections:
                refusal = refusal or all_busy()
                continue
            try:
                replica.engine.check_room(caller)
            except QueueFullError as error:
                refusal = refusal or error
            else:
                return
        assert refusal is not None
        raise refusal

    def check_health(self) -> None:
        """Raise `EngineError` if no replica can serve."""
        self._requests.check()
        if not any(replica.can_serve for replica in self.replicas.values()):
            raise EngineError("No upstream engine can serve now.", status=503)

    async def aclose(self) -> None:
        self._requests.close()
        await self._health.aclose()
        await asyncio.gather(*(replica.engine.aclose() for replica in self.replicas.values()))
