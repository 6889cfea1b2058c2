"""Callers take turns for the places in vLLM. vLLM itself is not needed."""

import asyncio

import pytest

from engine.vllm.places import FairPlaces
from tests.helpers import until


class Room:
    """Tasks that stay inside of a places until they are told to leave."""

    def __init__(self, places: FairPlaces) -> None:
        self.places = places
        self.inside: dict[str, asyncio.Event] = {}
        self.entered: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def _stay(self, name: str) -> None:
        async with self.places.turn(name[0]):
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


async def test_places_go_round_callers() -> None:
    room = Room(FairPlaces(1))
    await room.come("a1", "a2", "a3", "b1", "c1")
    for name in ("a1", "a2", "b1", "c1"):
        await until(lambda name=name: name in room.inside)
        await room.leave(name)
    await until(lambda: "a3" in room.inside)
    assert room.entered == ["a1", "a2", "b1", "c1", "a3"]
    await room.close()


async def test_a_lower_priority_goes_first_whoever_the_caller_is() -> None:
    places, entered, free = FairPlaces(1), list[str](), asyncio.Event()

    async def come(name: str, priority: int) -> None:
        async with places.turn(name[0], priority):
            entered.append(name)
            await free.wait()

    async with asyncio.TaskGroup() as group:
        for name, priority in (("a1", 5), ("a2", 5), ("a3", 1), ("b1", 5), ("b2", 1)):
            group.create_task(come(name, priority))
        await until(lambda: entered == ["a1"])
        free.set()
    assert entered == ["a1", "a3", "b2", "a2", "b1"]


async def test_a_place_is_kept_for_others() -> None:
    room = Room(FairPlaces(2, max_per_caller=1))
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
    places = FairPlaces(1)
    room = Room(places)
    async with places.turn("a"):
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
