"""The one thread of the process that runs models. All models' cores take turns on it, step by step.

Threads that compute at the same time take the processor's cores from each other, and each keeps a pool of
workers. On one thread, a step has the whole machine.

**Turns.** The core that has computed for the shortest time runs one step, if it has work. So cores that
always have work compute for equally long, however long their steps are. A core that had no work has saved
nothing: it begins with the time of the core that ran last. Of two cores with the same time, the one that
waited longer runs.

**Judges.** Text that a guard holds waits for a guard model, which has no work until an event loop has taken
the text in. If the next step of the served model began meanwhile, the first text of an answer would wait for
that step too. So after a step that begins outputs, the thread waits a moment for the work of judges, at most
a twentieth of the step's time.

If a core raises in a step or a call, the thread drops it and notifies its owner. The other cores continue. If
the device is lost, or the thread's own work raises, all cores are dropped.

The thread begins with the first core and ends with the last. Models load on their own threads, so that
loaded models answer meanwhile; one loads at a time, because it measures the free memory.
"""

import atexit
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, Protocol, TypeVar

from engine.protocol.errors import DeviceLostError
from engine.protocol.stats import EngineStats

logger = logging.getLogger("weir.engine")


class Core(Protocol):
    """One model and the work that waits for it. Only the engine thread calls it."""

    @property
    def has_work(self) -> bool: ...
    @property
    def begins_outputs(self) -> bool:
        """Whether the last step gave outputs their first part."""

    def step(self) -> Sequence[Any]:
        """Do a bounded part of the work. Returns outputs for the owner."""

    def stats(self) -> EngineStats: ...


WAIT_SHARE = 0.05
"""The part of a step's time that the thread may wait after it for judges."""
LAST_STEP = 10.0
"""Seconds that the end of the process waits for the step that runs."""

C = TypeVar("C", bound=Core)

Deliver = Callable[[Sequence[Any], EngineStats], None]
"""Takes the outputs of a step, and the numbers after it."""


@dataclass(eq=False, slots=True)
class _Place:
    """A core's place on the thread."""

    name: str
    core: Core
    deliver: Deliver
    fail: Callable[[], None]
    judges: bool
    turn: Callable[[], AbstractContextManager[object]]
    seconds: float = 0.0
    """The time that its steps took, and the time of other cores' steps while it had no work."""
    had_work: bool = False
    last_turn: int = 0


class EngineThread:
    """Runs the steps of many cores. All methods may be called from any thread."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        """`clock`: seconds."""
        self._clock = clock
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._places: dict[Core, _Place] = {}
        self._seconds = 0.0
        """The time of the core that ran last, at the beginning of its step."""
        self._num_turns = 0

    def add(
        self,
        name: str,
        core: Core,
        deliver: Deliver,
        fail: Callable[[], None],
        *,
        judges: bool = False,
        turn: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Give the core turns. `name`: the model's, for the log. `judges`: only guards use the model. `turn`
        is entered around each step and call of the core.

        On this thread, `deliver` gets the core's outputs after each step, and its numbers also when a call
        leaves it without work. `fail` is called once if the core raises.
        """
        with self._lock:
            self._inbox.put(partial(self._add, _Place(name, core, deliver, fail, judges, turn)))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="weir-engine", daemon=True)
                self._thread.start()

    def call(self, core: C, call: Callable[[C], object]) -> None:
        """Call `call(core)` between two steps, after all earlier calls. A core that is gone is not called."""
        self._inbox.put(partial(self._call, core, call))

    def remove(self, core: Core) -> Future[None]:
        """Drop the core after the step that runs. Done once it has no more turns; also if it had none."""
        gone: Future[None] = Future()
        gone.set_running_or_notify_cancel()
        with self._lock:
            if self._thread is None:
                gone.set_result(None)
            else:
                self._inbox.put(partial(self._remove, core, gone))
        return gone

    def end(self) -> None:
        """Drop all cores after the step that runs, and wait for the thread's end.

        For the end of the process: Python would end the thread inside of torch, which aborts the process.
        """
        with self._lock:
            if (thread := self._thread) is None:
                return
            self._inbox.put(self._places.clear)
        thread.join(LAST_STEP)

    # Methods of the thread.

    def _run(self) -> None:
        is_needed = True
        while is_needed:
            try:
                if is_needed := self._take_in():
                    self._step(self._next())
            except BaseException:
                logger.critical("the engine thread failed, and all engines with it", exc_info=True)
                self._drop_all()

    def _drop_all(self) -> None:
        """Drop all cores, so that no request waits for a thread that runs nothing."""
        places = [*self._places.values()]
        self._places.clear()
        for place in places:
            place.fail()

    def _take_in(self) -> bool:
        """Make all calls in the inbox. Waits for one while no core has work. False: no core is left."""
        while not self._inbox.empty() or not any(core.has_work for core in self._places):
            if not self._places and self._ends():
                return False
            self._inbox.get()()
        return True

    def _ends(self) -> bool:
        """Whether the thread ends: no core has been added in the meantime."""
        with self._lock:
            if self._inbox.empty():
                self._thread = None
            return self._thread is None

    def _next(self) -> _Place:
        """The place whose turn it is."""
        working = []
        for place in self._places.values():
            had_work, place.had_work = place.had_work, place.core.has_work
            if place.had_work:
                working.append(place)
                if not had_work:
                    place.seconds = max(place.seconds, self._seconds)
        return min(working, key=lambda place: (place.seconds, place.last_turn))

    def _step(self, place: _Place) -> None:
        self._seconds = place.seconds
        self._num_turns += 1
        place.last_turn = self._num_turns
        began = self._clock()
        with self._dropping(place):
            place.deliver(place.core.step(), place.core.stats())
        seconds = self._clock() - began
        place.seconds += seconds
        if place.core.begins_outputs and not place.judges:
            self._await_judges(WAIT_SHARE * seconds)

    def _await_judges(self, seconds: float) -> None:
        """Make calls until a judge has work, or until the time is over."""
        end = perf_counter() + seconds
        while (judges := [place.core for place in self._places.values() if place.judges]) and not any(
            core.has_work for core in judges
        ):
            try:
                call = self._inbox.get(timeout=max(0.0, end - perf_counter()))
            except queue.Empty:
                return
            call()

    @contextmanager
    def _dropping(self, place: _Place) -> Iterator[None]:
        """Drop the core if it raises inside, and every core if the device is lost."""
        try:
            with place.turn():
                yield
        except DeviceLostError:
            logger.critical("the device is lost, and all engines with it", exc_info=True)
            self._drop_all()
        except BaseException:
            logger.critical("the engine of %s died", place.name, exc_info=True)
            del self._places[place.core]
            place.fail()

    def _add(self, place: _Place) -> None:
        self._places[place.core] = place

    def _call(self, core: C, call: Callable[[C], object]) -> None:
        if (place := self._places.get(core)) is None:
            return
        with self._dropping(place):
            call(core)
            if not core.has_work:
                place.deliver((), core.stats())

    def _remove(self, core: Core, gone: Future[None]) -> None:
        self._places.pop(core, None)
        gone.set_result(None)


ENGINE_THREAD = EngineThread()
"""The thread of this process."""
atexit.register(ENGINE_THREAD.end)
