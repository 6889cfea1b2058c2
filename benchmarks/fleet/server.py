"""One simulated replica: a batch of streams, a queue, a prefix cache, and ways to fail. It has no clock: the
caller gives the time, in seconds."""

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Generic, Literal, TypeVar

from benchmarks.fleet.machine import Machine
from benchmarks.fleet.traffic import BLOCK, Chat
from engine.protocol import EngineError, ModelInfo, QueueFullError

State = Literal["up", "draining", "hung", "down"]
Event = Literal["began", "finished"]


class Request:
    """One turn of a chat."""

    __slots__ = ("answer_node", "cached_blocks", "chat", "prompt_blocks")

    def __init__(self, chat: Chat, answer_node: int) -> None:
        self.chat = chat
        self.answer_node = answer_node
        """The node of the answer, and of the user's next message."""
        self.prompt_blocks = self.cached_blocks = 0
        """The server fills both when it computes the prompt."""


R = TypeVar("R", bound=Request)


class PrefixCache:
    """The `capacity` blocks that were used last. The last blocks of a prompt go before those that they
    follow."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._nodes: OrderedDict[int, int] = OrderedDict()
        self._used = 0

    def cached(self, prompt: Iterable[tuple[int, int]]) -> int:
        """Blocks at the prompt's beginning that are there."""
        found = 0
        for node, length in prompt:
            there = min(self._nodes.get(node, 0), length)
            found += there
            if there < length:
                break
        return found

    def use(self, prompt: Sequence[tuple[int, int]]) -> None:
        nodes = self._nodes
        for node, length in reversed(prompt):
            there = nodes.pop(node, 0)
            nodes[node] = length if length > there else there
            self._used += nodes[node] - there
        while self._used > self._capacity:
            node, there = nodes.popitem(last=False)
            left = max(0, there - (self._used - self._capacity))
            self._used -= there - left
            if left:
                nodes[node] = left
                nodes.move_to_end(node, last=False)

    def clear(self) -> None:
        self._nodes.clear()
        self._used = 0


class Server(Generic[R]):
    """Streams share steps. One prompt is computed at a time. Beside streams it takes half of the time, as in
    Weir's own engine.

    After every change the caller asks `next_event` when something happens by itself, and calls `event` then,
    unless there was another change before (`version`).
    """

    info = ModelInfo()
    """As an engine of the pool has it: serves any model."""

    def __init__(self, machine: Machine, *, batch: int, queue: int, cache_blocks: int) -> None:
        self._machine = machine
        self._batch, self._queue = batch, queue
        self.cache = PrefixCache(cache_blocks)
        self.state: State = "up"
        self.version = 0
        self.busy = 0.0
        """Seconds in which it worked."""
        self._at = 0.0
        self._waiting: deque[R] = deque()
        self._prefilling: R | None = None
        self._prefill_left = 0.0
        self._streams: list[tuple[float, int, R]] = []
        """A heap, by the step after which a stream is at its end."""
        self._steps = 0.0
        self._number = 0
        self._due: Event | None = None

    def check_health(self) -> None:
        """A pool asks for it."""

    @property
    def num_requests(self) -> int:
        return len(self._waiting) + len(self._streams) + (self._prefilling is not None)

    def accept(self, now: float, request: R) -> None:
        """Raises `EngineError` as the pool's engines do."""
        if self.state in ("down", "draining"):
            raise EngineError("It takes no requests.", status=503)
        if len(self._waiting) >= self._queue:
            raise QueueFullError
        self._advance(now)
        self._waiting.append(request)

    def drop(self, now: float, request: R) -> None:
        """The request's client left."""
        self._advance(now)
        if request is self._prefilling:
            self._prefilling = None
        elif request in self._waiting:
            self._waiting.remove(request)
        else:
            self._streams = [stream for stream in self._streams if stream[2] is not request]
            heapify(self._streams)

    def become(self, now: float, state: State) -> list[R]:
        """Returns the requests that are lost: all, if it goes down."""
        self._advance(now)
        self.state = state
        if state != "down":
            return []
        prefilling = [] if self._prefilling is None else [self._prefilling]
        lost = [*(stream[2] for stream in self._streams), *prefilling, *self._waiting]
        self._streams, self._prefilling = [], None
        self._waiting.clear()
        self.cache.clear()
        return lost

    def next_event(self) -> float | None:
        """Seconds from the last change to the next event. None: nothing happens."""
        self.version += 1
        if self.state == "hung":
            return None
        self._begin_prefill()
        share = 0.5 if self._prefilling is not None and self._streams else 1.0
        self._due, delay = None, None
        if self._prefilling is not None:
            self._due, delay = "began", self._prefill_left / share
        if self._streams:
            steps = self._streams[0][0] - self._steps
            ends = max(steps, 0.0) * self._step_time / share
            if delay is None or ends < delay:
                self._due, delay = "finished", ends
        return delay

    def event(self, now: float) -> tuple[Event, R]:
        """What was to happen has happened."""
        self._advance(now)
        assert self._due is not None
        if self._due == "finished":
            request = heappop(self._streams)[2]
            # Of the node that follows, the answer is there and the user's next message is not.
            self.cache.use([*request.chat.prompt, (request.answer_node, request.chat.answer)])
            return "finished", request
        began, self._prefilling = self._prefilling, None
        assert began is not None
        self.cache.use(began.chat.prompt)
        self._number += 1
        heappush(self._streams, (self._steps + BLOCK * began.chat.answer, self._number, began))
        return "began", began

    @property
    def _step_time(self) -> float:
        return self._machine.step + self._machine.step_per_stream * len(self._streams)

    def _begin_prefill(self) -> None:
        if self._prefilling is not None or not self._waiting or len(self._streams) >= self._batch:
            return
        request = self._prefilling = self._waiting.popleft()
        prompt = request.chat.prompt
        length = sum([length for _, length in prompt])
        request.prompt_blocks = length
        request.cached_blocks = min(self.cache.cached(prompt), length - 1)
        self._prefill_left = (length - request.cached_blocks) * BLOCK * self._machine.prefill

    def _advance(self, now: float) -> None:
        elapsed, self._at = now - self._at, now
        if self.state == "hung" or not (self._streams or self._prefilling):
            return
        self.busy += elapsed
        if self._prefilling is not None:
            if self._streams:
                elapsed /= 2
            self._prefill_left = max(0.0, self._prefill_left - elapsed)
        if self._streams:
            self._steps += elapsed / self._step_time
