"""A worker's end of the connection, on the test's own event loop."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from engine.protocol import GenerationRequest
from hooks.api import Chunk, Verdict, emit
from hooks.pipeline.pipeline import Pipeline
from hooks.workers import worker
from hooks.workers.messages import Admit, Close, Feed, Open, Reply
from hooks.workers.worker import Worker
from tests.helpers import make_deltas, make_request, pipeline_of, until

Call = Callable[[str], None]


@pytest.fixture(autouse=True)
def mode() -> str:
    return "a worker's side"


class Wire:
    """A connection. The test puts frames in, and reads what the worker sends."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[list[Any] | None] = asyncio.Queue()
        self.sent: list[Any] = []

    async def receive(self) -> list[Any]:
        frame = await self.frames.get()
        if frame is None:
            raise EOFError
        return frame

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def beat(self) -> None:
        pass

    @property
    def closed(self) -> list[int]:
        return [one.key for one in self.sent if isinstance(one, Reply) and one.is_closed]


@dataclass
class Hook:
    """Remembers the order of its calls. `meanwhile` is called in each of them."""

    called: list[str]
    meanwhile: Call

    def __call__(self, chunk: Chunk) -> Verdict:
        if chunk.text_diff:
            self._note(chunk.request_id + ":" + chunk.text_diff)
        return emit(chunk.pending)

    def on_request(self, request: GenerationRequest) -> GenerationRequest:
        self._note(request.request_id)
        return request

    def _note(self, what: str) -> None:
        self.called.append(what)
        self.meanwhile(what)


Serving = Callable[..., Awaitable[tuple[Wire, list[str]]]]


@pytest.fixture
async def serving(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serving]:
    """Starts a worker that has no patience: every call is a long one."""
    monkeypatch.setattr(worker, "PATIENCE", 0)
    running: list[tuple[Wire, asyncio.Task[None]]] = []

    async def start(meanwhile: Callable[[Wire, str], None] = lambda *_: None) -> tuple[Wire, list[str]]:
        wire, called = Wire(), list[str]()
        pipeline = pipeline_of(Hook(called, lambda what: meanwhile(wire, what)))
        await pipeline.start()
        called.clear()
        served = Worker(wire, pipeline).serve()  # type: ignore[arg-type]
        running.append((wire, asyncio.get_running_loop().create_task(served)))
        return wire, called

    yield start
    for wire, task in running:
        wire.frames.put_nowait(None)
        await task


def messages(key: int, caller: str, *texts: str) -> list[Any]:
    """A request from its beginning to its end."""
    request = replace(make_request(), request_id=f"{caller}{key}", caller=caller)
    feeds = [Feed(key, delta) for text in texts for delta in make_deltas([text], finish=False)]
    return [Open(key, request), Admit(key, request), *feeds, Close(key)]


async def test_callers_take_turns_in_a_frame(serving: Serving) -> None:  # contract 8.5
    wire, called = await serving()
    frame = [one for key in range(3) for one in messages(key, "a")] + messages(3, "b")
    wire.frames.put_nowait(frame)
    await until(lambda: len(wire.closed) == 4)
    assert called == ["a0", "b3", "a1", "a2"]


async def test_a_frame_that_arrives_during_a_long_call_takes_its_turn(serving: Serving) -> None:
    def meanwhile(wire: Wire, what: str) -> None:
        if what == "a0":
            wire.frames.put_nowait([one for key in (1, 2) for one in messages(key, "a", "x")])
            wire.frames.put_nowait(messages(3, "b"))

    wire, called = await serving(meanwhile)
    wire.frames.put_nowait(messages(0, "a"))
    await until(lambda: len(wire.closed) == 4)
    assert called.index("b3") < called.index("a1:x"), called


async def test_the_messages_of_a_request_stay_in_order(serving: Serving) -> None:
    wire, called = await serving()
    texts = "one", "two", "three"
    wire.frames.put_nowait(messages(0, "a", *texts) + messages(1, "b", *texts))
    await until(lambda: len(wire.closed) == 2)
    for request in ("a0", "b1"):
        assert [one for one in called if one.startswith(request)] == [
            request,
            *(f"{request}:{text}" for text in texts),
        ]


async def test_a_worker_whose_model_has_failed_for_good_ends_so_that_it_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "ALIVE_INTERVAL", 0.001)
    wire, pipeline = Wire(), pipeline_of(Hook([], lambda _: None))
    serving = asyncio.get_running_loop().create_task(worker._serve(pipeline, wire))  # type: ignore[arg-type]
    opened = messages(0, "a")[:2]
    wire.frames.put_nowait(opened)
    await until(lambda: any(isinstance(one, Reply) for one in wire.sent))
    monkeypatch.setattr(Pipeline, "is_alive", False)
    await serving
    assert wire.closed == [0], "the open stream has its last call"


async def test_a_worker_whose_service_is_gone_ends_though_messages_wait(serving: Serving) -> None:
    def meanwhile(wire: Wire, what: str) -> None:
        if what == "a0":
            wire.frames.put_nowait(None)

    wire, called = await serving(meanwhile)
    wire.frames.put_nowait(messages(0, "a", "x") + messages(1, "a"))
    await until(lambda: wire.closed)
    assert wire.closed == [0], "the open stream has its last call"
    assert "a1" not in called
