"""Models share the memory of a GPU: arithmetic, with a device of 80 GiB that a test fills by hand."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.device.budget import SLACK, DeviceBudget, StepMemory

GIB = 2**30


class FakeMemory:
    """Implements `DeviceMemory`. Models hold what tests say, and a run takes what is in `peaks`."""

    def __init__(self, total: int = 80 * GIB, others: int = 0) -> None:
        self.total = total
        self.others = others
        self.held = 0
        self.peaks: list[int] = []

    def free(self) -> int:
        return self.total - self.others - self.held

    def peak_of(self, run: Callable[[], object]) -> int:
        run()
        return self.peaks.pop(0)


def test_the_cache_gets_what_weights_a_step_and_graphs_leave_of_the_share() -> None:
    memory = FakeMemory()
    budget = DeviceBudget(memory)
    memory.held = 16 * GIB
    assert budget.room(0.9, StepMemory(2 * GIB, GIB)) == (72 - 16 - 3) * GIB
    assert budget.room(0.5, StepMemory(2 * GIB, GIB)) == (40 - 16 - 3) * GIB


def test_what_other_programs_held_before_is_not_this_process_s() -> None:
    memory = FakeMemory(others=30 * GIB)
    budget = DeviceBudget(memory)
    memory.held = 10 * GIB
    assert budget.room(0.5, StepMemory(GIB)) == (40 - 10 - 1) * GIB
    assert budget.room(0.9, StepMemory(GIB)) == int((40 - SLACK * 80) * GIB) - GIB, "no more than is free"


def test_a_later_model_gets_what_is_left_below_its_own_share() -> None:
    memory = FakeMemory()
    budget = DeviceBudget(memory)
    memory.held = 16 * GIB
    memory.held += budget.room(0.6, StepMemory(4 * GIB, GIB)) + GIB
    assert memory.held == (48 - 4) * GIB
    memory.held += 2 * GIB
    room = budget.room(0.9, StepMemory(GIB))
    assert memory.held + room == (72 - 4) * GIB, "both compute in the memory of the larger step"


def test_guard_models_compute_in_memory_of_their_own() -> None:
    memory = FakeMemory()
    budget = DeviceBudget(memory)
    budget.room(0.5, StepMemory(4 * GIB))
    for step in (2, 1):
        assert budget.room(0.9, StepMemory(step * GIB), only_guards=True) == (72 - 4 - 2) * GIB
    assert budget.room(0.9, StepMemory(3 * GIB)) == (72 - 4 - 2) * GIB


def test_a_second_model_without_a_share_of_its_own_is_told_what_to_set() -> None:
    memory = FakeMemory()
    budget = DeviceBudget(memory)
    memory.held = 16 * GIB
    memory.held += budget.room(0.9, StepMemory(2 * GIB))
    memory.held += 4 * GIB
    with pytest.raises(ValueError, match="no memory is left for keys and values") as refused:
        budget.room(0.9, StepMemory(GIB, GIB))
    for told in ("80.0 GiB", "72.0 GiB", "74.0 GiB", "2.0 GiB", "gpu_memory_utilization", "kv_cache_memory"):
        assert told in str(refused.value)


def test_the_memory_of_a_model_that_was_closed_is_free_again() -> None:
    memory = FakeMemory()
    budget = DeviceBudget(memory)
    memory.held = 70 * GIB
    with pytest.raises(ValueError, match="no memory"):
        budget.room(0.9, StepMemory(3 * GIB))
    memory.held = 20 * GIB
    assert budget.room(0.9, StepMemory(3 * GIB)) == 49 * GIB


model = st.tuples(*(st.integers(0, 40 * GIB) for _ in range(3)), st.floats(0.01, 1.0))


@given(st.integers(0, 40 * GIB), st.lists(model, max_size=5))
def test_models_never_take_more_than_there_is_however_they_come(
    others: int, models: list[tuple[int, int, int, float]]
) -> None:
    memory = FakeMemory(others=others)
    budget = DeviceBudget(memory)
    largest = 0
    for weights, step, graphs, share in models:
        if weights > memory.free():
            break
        memory.held += weights
        try:
            room = budget.room(share, StepMemory(step, graphs))
        except ValueError:
            memory.held -= weights
            continue
        memory.held += room + graphs
        largest = max(largest, step)
        assert memory.held + largest <= share * memory.total
        assert memory.free() - largest >= SLACK * memory.total - 1
