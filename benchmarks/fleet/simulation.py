"""Chats over replicas, in simulated time. The pool's `attempts`, `Replica`, `Attempt` and `Breaker` decide.

`_send`, `_fail` and `_check_all` do what `PoolEngine.generate` and the health checks do, with events instead
of awaits.
"""

import random
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Any, Literal

from benchmarks.fleet.machine import Machine
from benchmarks.fleet.routings import ROUTINGS
from benchmarks.fleet.server import Request, Server
from benchmarks.fleet.traffic import KINDS, Chat, Kind, Traffic
from engine.protocol import EngineError
from engine.upstream.pool.health import TIMEOUT
from engine.upstream.pool.replica import Attempt, Replica, attempts, may_retry
from engine.upstream.pool.routing import Routing

Trouble = Literal["none", "failures", "restarts"]


@dataclass(frozen=True, slots=True)
class Fleet:
    """What is simulated. Times are seconds."""

    replicas: int = 16
    requests: int = 30_000
    rate: float = 2.0
    """Requests a second for each replica."""
    processes: int = 1
    """Weir processes before the replicas. They share no counts."""
    trouble: Trouble = "none"
    """failures: replicas go down or hang. restarts: each is drained and restarted, one after the other."""
    leaving: float = 0.02
    """Clients that leave before their answer is at its end, if it takes long enough."""
    patience: float = 5.0
    """Those leave after so long, on average."""
    every: float = 15.0
    """Between two failures, or from one restart's end to the next restart."""
    downtime: float = 15.0
    grace: float = 15.0
    """A replica that is drained has so long to end what runs."""
    batch: int = 16
    queue: int = 64
    """Requests that may wait at a replica."""
    cache_blocks: int = 8192
    first_token_timeout: float = 30.0
    """Simulated for replicas that hang. Those that are only slow have any time."""
    retries: int = 2
    health_interval: float = 10.0
    kinds: tuple[Kind, ...] = KINDS
    machine: Machine = field(default_factory=Machine)
    seed: int = 0


@dataclass(slots=True)
class Result:
    outcomes: Counter[str] = field(default_factory=Counter)
    """Requests by their end: finished, left, failed, or refused."""
    waits: "array[float]" = field(default_factory=lambda: array("f"))
    """Seconds from a request's arrival to its first token."""
    loads: "array[float]" = field(default_factory=lambda: array("f"))
    """Each second: requests at a replica that is up, the mean of all."""
    most: "array[float]" = field(default_factory=lambda: array("f"))
    """Each second: requests at the replica that has most of them."""
    prompt_blocks: int = 0
    cached_blocks: int = 0
    retries: int = 0
    busy: float = 0.0
    """Seconds that the busiest replica worked, as a multiple of the mean."""
    seconds: float = 0.0
    outstanding: int = 0
    """At the end, over all processes."""


class PooledRequest(Request):
    __slots__ = ("arrived", "attempt", "attempts", "is_over", "model", "server", "start")

    def __init__(self, chat: Chat, answer_node: int, arrived: float) -> None:
        super().__init__(chat, answer_node)
        self.arrived = arrived
        self.model = ""
        self.attempts: Iterator[Attempt]
        self.attempt: Attempt
        self.server: Server[PooledRequest]
        self.start = arrived
        """When the last attempt began."""
        self.is_over = False


class Simulation:
    def __init__(self, fleet: Fleet, routing: str) -> None:
        self.fleet = fleet
        self.now = 0.0
        self.result = Result()
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = count()
        self._rng = random.Random(fleet.seed)
        self._asked = 0
        self._open: dict[PooledRequest, None] = {}
        self._traffic = Traffic(fleet.seed, fleet.kinds)
        self._chats = self._traffic.chats(fleet.rate * fleet.replicas / self._traffic.mean_turns)
        sizes = {"batch": fleet.batch, "queue": fleet.queue, "cache_blocks": fleet.cache_blocks}
        self.servers = [Server[PooledRequest](fleet.machine, **sizes) for _ in range(fleet.replicas)]
        self.processes: list[tuple[list[Replica], Routing]] = [
            (self._replicas(), ROUTINGS[routing]()) for _ in range(fleet.processes)
        ]

    def _replicas(self) -> list[Replica]:
        # A replica takes a server for an `Engine`, and reads nothing that it lacks.
        engines: list[Any] = self.servers
        return [Replica(f"replica-{i}", one, clock=lambda: self.now) for i, one in enumerate(engines)]

    def run(self) -> Result:
        random.seed(self.fleet.seed)  # LeastOutstanding takes one of several by chance
        self._next_chat()
        self._later(1.0, self._sample)
        self._later(self.fleet.health_interval, self._check_all)
        if self.fleet.trouble == "failures":
            self._later(self.fleet.every, self._failure)
        elif self.fleet.trouble == "restarts":
            self._later(self.fleet.every, self._restart, 0)
        events = self._events
        while events:
            self.now, _, call, arguments = heappop(events)
            call(*arguments)
        return self._finished_result()

    def _finished_result(self) -> Result:
        result, replicas = self.result, [replica for group, _ in self.processes for replica in group]
        busy = [server.busy for server in self.servers]
        result.busy = max(busy) * len(busy) / (sum(busy) or 1.0)
        result.retries = sum(replica.stats().retries_total for replica in replicas)
        result.outstanding = sum(replica.outstanding for replica in replicas)
        result.seconds = self.now
        return result

    def _later(self, delay: float, call: Callable[..., None], *arguments: Any) -> None:
        heappush(self._events, (self.now + delay, next(self._number), call, arguments))

    @property
    def _is_over(self) -> bool:
        return self._asked >= self.fleet.requests and not self._open

    # Requests

    def _next_chat(self) -> None:
        if self._asked < self.fleet.requests:
            delay, chat = next(self._chats)
            self._later(delay, self._begin_chat, chat)

    def _begin_chat(self, chat: Chat) -> None:
        self._next_chat()
        self._ask(chat)

    def _ask(self, chat: Chat) -> None:
        if self._asked >= self.fleet.requests:
            return
        self._asked += 1
        # The pool takes it for a `GenerationRequest`, and reads nothing that it lacks.
        request: Any = PooledRequest(chat, next(self._traffic.nodes), self.now)
        self._open[request] = None
        if self._rng.random() < self.fleet.leaving:
            self._later(self._rng.expovariate(1 / self.fleet.patience), self._leave, request)
        replicas, routing = self._rng.choice(self.processes)
        request.attempts = attempts(replicas, routing, request, self.fleet.retries)
        try:
            request.attempt = next(request.attempts)
        except EngineError:
            self._end(request, "refused")
        else:
            self._send(request)

    def _send(self, request: PooledRequest) -> None:
        request.attempt.__enter__()
        request.start = self.now
        server: Any = request.attempt.replica.engine
        request.server = server
        try:
            server.accept(self.now, request)
        except EngineError as error:
            self._fail(request, error)
            return
        if server.state == "hung":
            self._later(self.fleet.first_token_timeout, self._time_out, request, request.attempt)
        self._plan(server)

    def _fail(self, request: PooledRequest, error: EngineError) -> None:
        attempt = request.attempt
        attempt.__exit__(type(error), error, None)
        following = None if attempt.has_begun or not may_retry(error) else next(request.attempts, None)
        if following is None:
            self._end(request, "failed")
            return
        request.attempt = following
        self._send(request)

    def _end(self, request: PooledRequest, outcome: str) -> None:
        assert not request.is_over, "a request ends once"
        request.is_over = True
        del self._open[request]
        self.result.outcomes[outcome] += 1

    def _leave(self, request: PooledRequest) -> None:
        if not request.is_over:
            request.server.drop(self.now, request)
            request.attempt.__exit__(GeneratorExit, GeneratorExit(), None)
            self._plan(request.server)
            self._end(request, "left")

    def _time_out(self, request: PooledRequest, attempt: Attempt) -> None:
        if request.attempt is attempt and not attempt.has_begun and not request.is_over:
            request.server.drop(self.now, request)
            self._fail(request, EngineError("It did not answer in time.", status=504))

    # Servers

    def _plan(self, server: Server[PooledRequest]) -> None:
        delay = server.next_event()
        if delay is not None:
            self._later(delay, self._happens, server, server.version)

    def _happens(self, server: Server[PooledRequest], version: int) -> None:
        if version != server.version:
            return
        event, request = server.event(self.now)
        if event == "began":
            self._began(request)
        else:
            self._finished(request)
        self._plan(server)

    def _began(self, request: PooledRequest) -> None:
        request.attempt.begin()
        self.result.waits.append(self.now - request.arrived)
        self.result.prompt_blocks += request.prompt_blocks
        self.result.cached_blocks += request.cached_blocks

    def _finished(self, request: PooledRequest) -> None:
        request.attempt.__exit__(None, None, None)
        self._end(request, "finished")
        if request.chat.answered(request.answer_node):
            self._later(request.chat.pause(), self._ask, request.chat)

    def _become(self, server: Server[PooledRequest], state: Any) -> None:
        for request in server.become(self.now, state):
            self._fail(request, EngineError("The connection was cut.", status=502))
        if state == "hung":
            for request in self._open:
                if request.server is server and not request.attempt.has_begun:
                    left = self.fleet.first_token_timeout - (self.now - request.start)
                    self._later(max(0.0, left), self._time_out, request, request.attempt)
        self._plan(server)

    def _failure(self) -> None:
        """One replica that is up goes down, or hangs first."""
        if self._is_over:
            return
        up = [server for server in self.servers if server.state == "up"]
        if len(up) > 1:
            server = self._rng.choice(up)
            hangs = self._rng.random() < 0.5
            if hangs:
                self._become(server, "hung")
                self._later(self.fleet.downtime, self._become, server, "down")
            else:
                self._become(server, "down")
            self._later(self.fleet.downtime * (1 + hangs), self._become, server, "up")
        self._later(self.fleet.every, self._failure)

    def _restart(self, index: int) -> None:
        """One replica after the other. The pool notices only by its health checks."""
        if self._is_over:
            return
        server = self.servers[index]
        self._become(server, "draining")
        self._later(self.fleet.grace, self._become, server, "down")
        self._later(self.fleet.grace + self.fleet.downtime, self._become, server, "up")
        whole = self.fleet.grace + self.fleet.downtime + self.fleet.every
        self._later(whole, self._restart, (index + 1) % len(self.servers))

    # Looking

    def _check_all(self) -> None:
        for replicas, _ in self.processes:
            for replica, server in zip(replicas, self.servers, strict=True):
                if server.state == "hung":
                    self._later(TIMEOUT, replica.is_unwell)
                elif server.state == "down":
                    replica.is_unwell()
                else:
                    replica.is_well(takes_new=server.state == "up")
        if not self._is_over:
            self._later(self.fleet.health_interval, self._check_all)

    def _sample(self) -> None:
        loads = [server.num_requests for server in self.servers if server.state == "up"]
        if loads:
            self.result.loads.append(sum(loads) / len(loads))
            self.result.most.append(max(loads))
        if not self._is_over:
            self._later(1.0, self._sample)


def simulated(fleet: Fleet, routing: str) -> Result:
    return Simulation(fleet, routing).run()


def percentile(values: "array[float]", percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else 0.0
