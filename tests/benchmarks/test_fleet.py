"""The simulation that drives the pool's code keeps account of every request."""

from dataclasses import replace

import pytest

from benchmarks.fleet.machine import Machine
from benchmarks.fleet.server import PrefixCache, Request, Server
from benchmarks.fleet.simulation import Fleet, Trouble, percentile, simulated
from benchmarks.fleet.traffic import BLOCK, HOT, KINDS, Traffic
from engine.protocol import EngineError, QueueFullError

SMALL = Fleet(replicas=4, requests=1500)
ROUTINGS = ["affinity", "least", "round robin", "oracle"]


def request(*prompt: tuple[int, int], answer: int = 2) -> Request:
    _, chat = next(Traffic(0, KINDS).chats(1.0))
    chat.prompt, chat.answer = list(prompt), answer
    return Request(chat, answer_node=100)


def server(batch: int = 2, queue: int = 4) -> Server:
    return Server(
        Machine(prefill=0.01, step=0.1, step_per_stream=0.1), batch=batch, queue=queue, cache_blocks=64
    )


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("trouble", ["none", "failures", "restarts"])
def test_every_request_ends_once_and_none_stays_outstanding(routing: str, trouble: Trouble) -> None:
    result = simulated(replace(SMALL, trouble=trouble, every=3.0, processes=2), routing)
    assert sum(result.outcomes.values()) == SMALL.requests
    assert result.outstanding == 0
    assert result.outcomes["left"]


def test_affinity_finds_more_in_caches_than_round_robin() -> None:
    results = {name: simulated(SMALL, name) for name in ("affinity", "round robin")}
    shares = {name: result.cached_blocks / result.prompt_blocks for name, result in results.items()}
    assert shares["affinity"] > shares["round robin"]


def test_replicas_that_restart_one_after_the_other_fail_no_request() -> None:
    result = simulated(replace(SMALL, trouble="restarts", every=3.0, leaving=0.0), "affinity")
    assert result.outcomes == {"finished": SMALL.requests}
    assert result.retries


def test_replicas_that_go_down_or_hang_fail_only_requests_that_had_begun() -> None:
    result = simulated(replace(SMALL, replicas=8, trouble="failures", leaving=0.0), "affinity")
    assert result.outcomes.keys() == {"finished", "failed"}
    assert len(result.waits) == SMALL.requests
    assert result.retries


def test_no_replica_is_stampeded_by_chats_that_begin_alike() -> None:
    result = simulated(replace(SMALL, replicas=16, kinds=HOT), "affinity")
    assert result.busy < 2


def test_one_seed_gives_the_same_result() -> None:
    fleet = replace(SMALL, requests=400, trouble="failures", every=2.0)
    assert simulated(fleet, "least") == simulated(fleet, "least")
    assert simulated(fleet, "least") != simulated(replace(fleet, seed=1), "least")


def test_a_cache_keeps_what_was_used_last_and_drops_ends_before_beginnings() -> None:
    cache = PrefixCache(capacity=8)
    cache.use([(1, 4), (2, 2)])
    cache.use([(1, 4), (3, 3)])
    assert cache.cached([(1, 4), (2, 2)]) == 5
    assert cache.cached([(1, 4), (3, 3)]) == 7
    assert cache.cached([(3, 3), (1, 4)]) == 7
    cache.clear()
    assert cache.cached([(1, 4)]) == 0


def test_a_server_computes_the_prompt_and_then_streams() -> None:
    one = server()
    one.accept(0.0, asked := request((1, 2)))
    assert one.next_event() == pytest.approx(2 * BLOCK * 0.01)
    assert one.event(0.32) == ("began", asked)
    assert one.next_event() == pytest.approx(2 * BLOCK * 0.2)
    assert one.event(6.72) == ("finished", asked)
    assert one.next_event() is None
    assert one.busy == pytest.approx(6.72)
    assert one.cache.cached([(1, 2), (100, 5)]) == 4


def test_a_server_computes_a_prompt_that_it_knows_but_for_its_last_block() -> None:
    one = server()
    one.cache.use([(1, 2), (2, 2)])
    one.accept(0.0, request((1, 2), (2, 2)))
    assert one.next_event() == pytest.approx(BLOCK * 0.01)


def test_streams_slow_each_other_and_take_turns_with_a_prompt() -> None:
    one = server()
    one.accept(0.0, request((1, 1)))
    one.next_event()
    one.event(0.16)
    one.accept(0.16, second := request((2, 1)))
    assert one.next_event() == pytest.approx(2 * 0.16)
    assert one.event(0.48) == ("began", second)
    # The first stream made 0.8 steps meanwhile. A step of two streams takes 0.3 seconds.
    assert one.next_event() == pytest.approx((2 * BLOCK - 0.8) * 0.3)


def test_a_server_refuses_what_it_cannot_take() -> None:
    one = server(batch=1, queue=1)
    one.accept(0.0, request((1, 1)))
    with pytest.raises(QueueFullError):
        one.accept(0.0, request((2, 1)))
    one.become(0.0, "draining")
    with pytest.raises(EngineError):
        one.accept(0.0, request((2, 1)))


def test_a_server_that_hangs_does_nothing_and_one_that_goes_down_loses_everything() -> None:
    one = server()
    one.accept(0.0, asked := request((1, 1)))
    assert one.become(0.0, "hung") == []
    assert one.next_event() is None
    assert one.become(5.0, "down") == [asked]
    assert one.num_requests == 0
    assert one.busy == 0


def test_a_request_that_leaves_frees_its_place() -> None:
    one = server(batch=1)
    requests = [request((number, 1)) for number in range(3)]
    one.accept(0.0, requests[0])
    one.next_event()
    one.event(0.16)
    for other in requests[1:]:
        one.accept(0.16, other)
    for leaver in (requests[1], requests[0]):
        one.drop(0.2, leaver)
    assert one.num_requests == 1
    assert one.next_event() == pytest.approx(0.16)
    one.drop(0.2, requests[2])
    assert one.num_requests == 0


def test_percentiles() -> None:
    values = simulated(replace(SMALL, requests=50), "least").waits
    assert min(values) <= percentile(values, 50) <= percentile(values, 99) <= max(values)
