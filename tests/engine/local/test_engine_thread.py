"""Models' cores take turns on one thread."""

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from engine.local.engine_thread import EngineThread
from engine.protocol.stats import EngineStats

WAIT = 30.0


class Clock:
    """Seconds that pass only where a core says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeCore:
    """Has so many steps to do, each of which takes `seconds`. The log has the names of cores in the order of
    their steps. `then` is called after each step."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        log: list[str],
        seconds: float,
        then: Callable[[], object] = lambda: None,
    ) -> None:
        self.name, self.clock, self.log, self.seconds, self.then = name, clock, log, seconds, then
        self.num_steps = 0
        """Steps to do."""
        self.begins_outputs = False

    def add(self, num_steps: int) -> None:
        self.num_steps += num_steps

    @property
    def has_work(self) -> bool:
        return self.num_steps > 0

    def step(self) -> Sequence[Any]:
        self.num_steps -= 1
        self.clock.now += self.seconds
        self.log.append(self.name)
        self.then()
        return [self.name]

    def stats(self) -> EngineStats:
        return EngineStats(num_waiting=self.num_steps)


class Told:
    """The calls that an owner got about its core."""

    def __init__(self) -> None:
        self.outputs: list[Any] = []
        self.stats = EngineStats()
        self.is_done = threading.Event()
        """A step has left no work."""
        self.is_idle = threading.Event()
        """A call or a step has left no work."""
        self.has_failed = threading.Event()

    def deliver(self, outputs: Sequence[Any], stats: EngineStats) -> None:
        self.outputs += outputs
        self.stats = stats
        if not stats.num_waiting:
            self.is_idle.set()
            if outputs:
                self.is_done.set()


class Bench:
    """An engine thread with fake cores. Leaving it removes them."""

    def __init__(self) -> None:
        self.clock, self.log = Clock(), list[str]()
        self.thread = EngineThread(self.clock)
        self.told: dict[FakeCore, Told] = {}

    def core(
        self, name: str, seconds: float, then: Callable[[], object] = lambda: None, *, judges: bool = False
    ) -> FakeCore:
        core = FakeCore(name, self.clock, self.log, seconds, then)
        told = self.told[core] = Told()
        self.thread.add(name, core, told.deliver, told.has_failed.set, judges=judges)
        return core

    def give(self, **steps: int) -> None:
        """Give the cores of these names steps to do, all at once."""
        ready = threading.Event()
        cores = {core.name: core for core in self.told}
        self.thread.call(cores[next(iter(steps))], lambda _: ready.wait(WAIT))
        for name, num_steps in steps.items():
            self.told[cores[name]].is_done.clear()
            self.thread.call(cores[name], partial(FakeCore.add, num_steps=num_steps))
        ready.set()

    def wait(self, *cores: FakeCore) -> None:
        for core in cores:
            assert self.told[core].is_done.wait(WAIT)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    for core in bench.told:
        bench.thread.remove(core).result(WAIT)


def test_each_step_and_each_call_is_inside_the_cores_turn(bench: Bench) -> None:
    @contextmanager
    def turn() -> Iterator[None]:
        bench.log.append("begin")
        yield
        bench.log.append("end")

    guard = FakeCore("guard", bench.clock, bench.log, 0.1)
    told = bench.told[guard] = Told()
    bench.thread.add("guard", guard, told.deliver, told.has_failed.set, judges=True, turn=turn)
    bench.give(guard=2)
    bench.wait(guard)
    assert bench.log == ["begin", "end"] * 2 + ["begin", "guard", "end"] * 2


def test_cores_with_work_compute_for_equally_long_however_long_their_steps_are(bench: Bench) -> None:
    serving, guard = bench.core("serving", 0.01), bench.core("guard", 0.1)
    bench.give(serving=100, guard=10)
    bench.wait(serving, guard)
    assert Counter(bench.log[:55]) == {"serving": 50, "guard": 5}
    assert max(map(len, "".join(c[0] for c in bench.log).split("g"))) <= 11, "neither waits for long"


def test_a_core_that_had_no_work_runs_next_and_has_saved_nothing(bench: Bench) -> None:
    serving = bench.core("serving", 0.01, lambda: serving.num_steps == 50 and bench.give(guard=40))
    guard = bench.core("guard", 0.01)
    bench.give(serving=100)
    bench.wait(serving, guard)
    began = bench.log.index("guard")
    assert began <= 52
    assert Counter(bench.log[began : began + 40]) == {"guard": 20, "serving": 20}


def test_work_that_comes_with_each_step_of_another_is_done_after_that_step(bench: Bench) -> None:
    """All tokens that came for a guard during a step are judged before the next one."""
    guard = bench.core("guard", 0.002)
    serving = bench.core("serving", 0.01, lambda: guard.add(1))
    bench.give(serving=50)
    bench.wait(serving, guard)
    assert bench.log == ["serving", "guard"] * 50


@pytest.mark.parametrize("begins_outputs", [True, False])
def test_the_beginning_of_an_output_is_judged_before_the_next_step(
    begins_outputs: bool, bench: Bench
) -> None:
    """The judge's work comes from another thread, a little later."""
    guard = bench.core("guard", 0.002, judges=True)
    delivered = threading.Event()

    def judge() -> None:
        assert delivered.wait(WAIT)
        bench.thread.call(serving, lambda _: None)  # not the call that the thread waits for
        bench.thread.call(guard, partial(FakeCore.add, num_steps=1))

    serving = bench.core("serving", 20 * WAIT, delivered.set)
    serving.begins_outputs = begins_outputs
    judging = threading.Thread(target=judge)
    judging.start()
    bench.give(serving=2)
    judging.join(WAIT)
    bench.wait(serving, guard)
    if begins_outputs:
        assert bench.log == ["serving", "guard", "serving"]
    assert sorted(bench.log) == ["guard", "serving", "serving"]


@pytest.mark.parametrize("judges", [True, False])
def test_a_step_waits_for_no_judge_that_has_nothing_to_do_for_long(judges: bool, bench: Bench) -> None:
    serving = bench.core("serving", 0.01)
    serving.begins_outputs = True
    bench.core("guard", 0.002, judges=judges)
    bench.give(serving=50)
    bench.wait(serving)
    assert bench.log == ["serving"] * 50


def test_a_core_that_raises_is_dropped_alone(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def die() -> None:
        raise RuntimeError("test")

    serving, guard = bench.core("serving", 0.01), bench.core("guard", 0.01, die)
    bench.give(serving=10, guard=10)
    bench.wait(serving)
    assert bench.told[guard].has_failed.wait(WAIT)
    assert not bench.told[serving].has_failed.is_set()
    assert bench.log.count("serving") == 10
    assert "the engine of guard died" in caplog.text
    bench.give(guard=1)
    bench.give(serving=1)
    bench.wait(serving)
    assert bench.log.count("guard") == 1, "no call reaches a core that is gone"


def test_a_call_that_raises_drops_its_core_alone(bench: Bench) -> None:
    serving, guard = bench.core("serving", 0.01), bench.core("guard", 0.01)
    bench.thread.call(guard, lambda core: core.no_such_name)  # type: ignore[attr-defined]
    assert bench.told[guard].has_failed.wait(WAIT)
    bench.give(serving=3)
    bench.wait(serving)
    assert bench.told[serving].outputs == ["serving"] * 3


def test_all_owners_are_told_if_turns_cannot_be_given_and_the_thread_serves_again(bench: Bench) -> None:
    class Broken(FakeCore):
        @property
        def has_work(self) -> bool:
            raise RuntimeError("test")

    serving = bench.core("serving", 0.01)
    broken, told = Broken("broken", bench.clock, bench.log, 0.01), Told()
    bench.thread.add("broken", broken, told.deliver, told.has_failed.set)
    assert told.has_failed.wait(WAIT)
    assert bench.told[serving].has_failed.wait(WAIT)
    bench.thread.remove(broken).result(WAIT)
    bench.thread.remove(serving).result(WAIT)
    later = bench.core("later", 0.01)
    bench.give(later=2)
    bench.wait(later)


def test_calls_reach_their_core_in_order_and_outputs_their_owner(bench: Bench) -> None:
    one, two = bench.core("one", 0.01), bench.core("two", 0.01)
    called: list[tuple[str, int]] = []
    for i in range(10):
        bench.thread.call(one, lambda core, i=i: called.append((core.name, i)))
        bench.thread.call(two, lambda core, i=i: called.append((core.name, i)))
    bench.give(one=2, two=3)
    bench.wait(one, two)
    assert called == [(name, i) for i in range(10) for name in ("one", "two")]
    assert bench.told[one].outputs == ["one"] * 2
    assert bench.told[two].outputs == ["two"] * 3


def test_a_call_that_leaves_a_core_without_work_gives_its_numbers(bench: Bench) -> None:
    core = bench.core("one", 0.01)
    bench.thread.call(core, lambda core: None)
    assert bench.told[core].is_idle.wait(WAIT)
    assert bench.told[core].outputs == []


def test_the_thread_lives_from_the_first_core_to_the_last() -> None:
    bench = Bench()
    one, two = bench.core("one", 0.01), bench.core("two", 0.01)
    (thread,) = _threads(bench, one)
    bench.thread.remove(one).result(WAIT)
    assert _threads(bench, two) == [thread]
    bench.thread.remove(two).result(WAIT)
    bench.thread.remove(two).result(WAIT)
    thread.join(WAIT)
    assert not thread.is_alive()
    three = bench.core("three", 0.01)
    (another,) = _threads(bench, three)
    assert another is not thread
    bench.thread.remove(three).result(WAIT)


def _threads(bench: Bench, core: FakeCore) -> list[threading.Thread]:
    """The thread that calls this core."""
    found: list[threading.Thread] = []
    done = threading.Event()
    bench.thread.call(core, lambda _: (found.append(threading.current_thread()), done.set()))
    assert done.wait(WAIT)
    return found


@pytest.mark.parametrize("num_threads", [8])
def test_cores_may_come_and_go_from_any_thread(num_threads: int) -> None:
    bench = Bench()

    def come_and_go(i: int) -> None:
        for _ in range(50):
            core = FakeCore(str(i), bench.clock, [], 0.01)
            told = Told()
            bench.thread.add(str(i), core, told.deliver, told.has_failed.set)
            bench.thread.call(core, partial(FakeCore.add, num_steps=3))
            assert told.is_done.wait(WAIT)
            bench.thread.remove(core).result(WAIT)
            assert told.outputs == [str(i)] * 3

    threads = [threading.Thread(target=come_and_go, args=(i,)) for i in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert not any(thread.is_alive() for thread in threads)


def test_a_process_that_ends_in_the_middle_of_a_step_is_not_aborted() -> None:
    code = """
import subprocess
import sys
import threading
import torch
from engine.local.engine_thread import ENGINE_THREAD
from engine.protocol.stats import EngineStats

class Core:
    has_work = True
    begins_outputs = False
    def step(self):
        has_begun.set()
        [torch.zeros(8) for _ in range(20_000)]
        return []
    def stats(self):
        return EngineStats()

has_begun = threading.Event()
ENGINE_THREAD.add("model", Core(), lambda *_: None, lambda: None)
has_begun.wait()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT)
    assert (ended.returncode, ended.stderr) == (0, "")
