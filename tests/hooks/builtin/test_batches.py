"""Questions that come while a batch runs are the next batch."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from hooks.builtin.classifier_models.batches import Batches


@pytest.fixture(autouse=True)
def mode() -> str:
    return "no hooks"


class Model:
    """Doubles numbers, when it is let, and fails batches with a 13 in them."""

    def __init__(self, *, is_let: bool = True) -> None:
        self.batches: list[list[int]] = []
        self.go = threading.Event()
        self.began = threading.Event()
        if is_let:
            self.go.set()

    def __call__(self, items: Sequence[int]) -> list[int]:
        assert threading.current_thread() is not threading.main_thread()
        self.batches.append(list(items))
        self.began.set()
        assert self.go.wait(60)
        if 13 in items:
            raise RuntimeError("unlucky")
        return [2 * item for item in items]


async def begun(model: Model) -> None:
    assert await asyncio.to_thread(model.began.wait, 60)


async def test_what_is_asked_while_a_batch_runs_forms_the_next() -> None:
    model = Model(is_let=False)
    batches: Batches[int, int] = Batches(model, 8)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(batches.ask([0]))]
        await begun(model)
        tasks += [group.create_task(batches.ask([i, 10 * i])) for i in range(1, 6)]
        await asyncio.sleep(0)
        model.go.set()
    assert [task.result() for task in tasks] == [[0], *([2 * i, 20 * i] for i in range(1, 6))]
    assert model.batches == [[0], [1, 10, 2, 20, 3, 30, 4, 40], [5, 50]]


async def test_the_loop_goes_on_while_a_batch_runs() -> None:
    model = Model(is_let=False)
    asked = asyncio.get_running_loop().create_task(Batches[int, int](model, 8).ask([1]))
    await begun(model)  # which this loop got to see
    assert not asked.done()
    model.go.set()
    assert await asked == [2]


async def test_what_is_cancelled_before_its_turn_is_not_run() -> None:
    model = Model(is_let=False)
    batches: Batches[int, int] = Batches(model, 8)
    loop = asyncio.get_running_loop()
    first, second, third = (loop.create_task(batches.ask([i])) for i in range(3))
    await begun(model)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    model.go.set()
    assert (await first, await third) == ([0], [4])
    assert second.cancelled()
    assert all(1 not in batch for batch in model.batches)


async def test_a_failure_is_told_to_whom_it_concerns_alone() -> None:
    model = Model(is_let=False)
    batches: Batches[int, int] = Batches(model, 8)
    loop = asyncio.get_running_loop()
    asked = [loop.create_task(batches.ask([i])) for i in (1, 12, 13, 14)]
    await begun(model)
    model.go.set()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert [str(result) for result in results] == ["[2]", "[24]", "unlucky", "[28]"]
    assert await batches.ask([3]) == [6]


async def test_a_model_that_answers_for_fewer_fails() -> None:
    with pytest.raises(ValueError, match="zip"):
        await Batches[int, int](lambda items: items[1:], 8).ask([1, 2])


def test_it_serves_one_event_loop_after_another() -> None:
    batches: Batches[int, int] = Batches(Model(), 8)
    assert [asyncio.run(batches.ask([i])) for i in range(3)] == [[0], [2], [4]]
