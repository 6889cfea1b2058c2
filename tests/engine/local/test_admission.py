"""Who may add outputs to the engine's queue."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.local.admission import Admission
from engine.protocol import CallerLimitError, GenerationRequest, QueueFullError
from engine.protocol.options import EngineConfig
from tests.helpers import make_request


def request(caller: str, n: int = 1) -> GenerationRequest:
    return replace(make_request(n=n), caller=caller)


def admission(num_places: int, **options: int) -> Admission:
    return Admission(EngineConfig(max_num_seqs=1, max_queue_len=num_places - 1, **options))


def test_one_caller_may_fill_the_queue_and_another_still_gets_an_equal_share() -> None:
    queue = admission(8)
    for _ in range(8):
        queue.check("a")
        queue.add(request("a"))
    with pytest.raises(QueueFullError):
        queue.check("a")
    for _ in range(4):
        queue.check("b")
        queue.add(request("b"))
    with pytest.raises(QueueFullError):
        queue.check("b")


def test_places_are_free_again_when_a_request_ends() -> None:
    queue = admission(2)
    queue.add(large := request("a", n=2))
    with pytest.raises(QueueFullError):
        queue.check("a")
    queue.remove(large)
    queue.check("a")


def test_a_caller_s_own_bound_holds_while_nobody_else_asks() -> None:
    queue = admission(100, max_queue_len_per_caller=2)
    for _ in range(3):  # one runs, and two wait
        queue.check("a")
        queue.add(request("a"))
    with pytest.raises(CallerLimitError, match=r"2 \(max_queue_len_per_caller\)"):
        queue.check("a")
    queue.check("b")


@given(st.integers(1, 9), st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 20))))
def test_a_caller_with_nothing_in_the_queue_always_gets_in(
    num_places: int, requests: list[tuple[str, int]]
) -> None:
    queue = admission(num_places)
    for caller, n in requests:
        queue.add(request(caller, n))
    queue.check("d")
