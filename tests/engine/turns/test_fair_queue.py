"""Callers take turns, whatever each of them puts in."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from engine.turns.fair_queue import FairQueue

CALLERS = "abcd"


def drained(queue: FairQueue[str]) -> str:
    taken = ""
    while (item := queue.first()) is not None:
        queue.dequeue(item[0], item)
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
            queue.dequeue(caller, item)
            waiting[caller] -= 1
            overtaken[caller].clear()
            for other in set(+waiting) - {caller}:
                overtaken[other][caller] += 1
                assert overtaken[other][caller] == 1
    assert not queue
