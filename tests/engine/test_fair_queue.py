"""Callers take turns, whatever each of them puts in."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.fair_queue import FairQueue, FairSemaphore
from tests.helpers import until

CALLERS = "abcd"


def drained(queue: FairQueue[str]) -> str:
    taken = ""
    while (item := queue.first()) is not None:
        queue.take(item[0], item)
        taken += item + " "
    return taken.strip()


def test_callers_take_turns_in_the_order_of_their_first_item() -> None:
    queue = FairQueue[str]()
    for item in ("a1", "a2", "a3", "b1", "c1", "b2"):
        queue.add(item[0], item)
    assert (len(queue), sorted(queue)) == (6, ["a1", "a2", "a3", "b1", "b2", "c1"])
    assert drained(queue) == "a1 b1 c1 a2 b2 a3"
    assert not queue


def test_a_caller_s_own_items_have_an_order() -> None:
    queue = FairQueue[str](key=lambda item: item[1])
    for item in ("a3", "a1", "b2", "a2", "b1"):
        queue.add(item[0], item)
    assert drained(queue) == "a1 b1 a2 b2 a3"


def test_the_caller_with_the_least_load_goes_first_and_one_without_a_load_not_at_all() -> None:
    queue = FairQueue[str]()
    for item in ("a1", "b1", "c1"):
        queue.add(item[0], item)
    loads = {"a": 2, "b": 1, "c": None}
    assert queue.first(lambda caller, _: loads[caller]) == "b1"
    assert queue.first(lambda *_: None) is None


def test_an_item_is_removed_once() -> None:
    queue, one, same = FairQueue[list[int]](), [1], [1]
    queue.add("a", one)
    assert not queue.remove("a", same), "an equal item is another one"
    assert queue.remove("a", one)
    assert not queue.remove("a", one)
    assert not queue


@given(st.lists(st.none() | st.sampled_from(CALLERS)))
def test_no_caller_waits_for_more_than_one_turn_of_each_other_caller(
    events: list[str | None],
) -> None:  # contract 8.5
    """An event is the arrival of a caller's item, or None: the next item is taken."""
    queue = FairQueue[tuple[str, int]]()
    overtaken = {caller: Counter[str]() for caller in CALLERS}
    waiting = Counter[str]()
    for number, event in enumerate(events + [None] * len(events)):
        if event is not None:
            queue.add(event, (event, number))
            waiting[event] += 1
        elif (item := queue.first()) is not None:
            caller, _ = item
            queue.take(caller, item)
            waiting[caller] -= 1
            overtaken[caller].clear()
            for other in set(+waiting) - {caller}:
                overtaken[other][caller] += 1
                assert overtaken[other][caller] == 1
    assert not queue


class Room:
    """Tasks that stay inside of a semaphore until they are told to leave."""

    def __init__(self, semaphore: FairSemaphore) -> None:
        self.semaphore = semaphore
        self.inside: dict[str, asyncio.Event] = {}
        self.entered: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def _stay(self, name: str) -> None:
        async with self.semaphore.turn(name[0]):
            self.entered.append(name)
            self.inside[name] = asyncio.Event()
            await self.inside[name].wait()

    async def come(self, *names: str) -> None:
        for name in names:
            self.tasks[name] = asyncio.get_running_loop().create_task(self._stay(name))
            await asyncio.sleep(0)  # so that they arrive in this order

    async def leave(self, name: str) -> None:
        self.inside[name].set()
        await self.tasks[name]
        await asyncio.sleep(0)

    async def close(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


async def test_the_places_of_a_semaphore_go_round_callers() -> None:
    room = Room(FairSemaphore(1))
    await room.come("a1", "a2", "a3", "b1", "c1")
    for name in ("a1", "a2", "b1", "c1"):
        await until(lambda name=name: name in room.inside)
        await room.leave(name)
    await until(lambda: "a3" in room.inside)
    assert room.entered == ["a1", "a2", "b1", "c1", "a3"]
    await room.close()


async def test_a_place_is_kept_for_others() -> None:
    room = Room(FairSemaphore(2, max_per_caller=1))
    await room.come("a1", "a2", "b1")
    await until(lambda: len(room.inside) == 2)
    assert room.entered == ["a1", "b1"]
    await room.leave("b1")
    assert room.entered == ["a1", "b1"], "the place stays free"
    await room.leave("a1")
    await until(lambda: "a2" in room.inside)
    await room.close()


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_task_that_is_cancelled_leaves_its_place_to_others(is_late: bool) -> None:
    """Late: its turn has come, but it has not run since."""
    semaphore = FairSemaphore(1)
    room = Room(semaphore)
    async with semaphore.turn("a"):
        await room.come("a1", "a2")
        if not is_late:
            room.tasks["a1"].cancel()
    if is_late:
        room.tasks["a1"].cancel()
    await until(lambda: "a2" in room.inside)
    assert room.entered == ["a2"]
    await room.leave("a2")
    await room.come("b1")
    await until(lambda: "b1" in room.inside)
    await room.close()
