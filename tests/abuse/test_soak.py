"""The parts of the soak. `make soak` runs it."""

from pathlib import Path

import orjson
import pytest

from tools.abuse.soak.run import MAX_STORED, State, grown, soak
from tools.abuse.soak.traffic import SECRET, leaks_in

IDLE = State(memory=100, descriptors=10, children=2, counts={"tasks": 4, "StoredResponse": 1})


@pytest.mark.parametrize(
    "answer",
    [
        SECRET[0].encode(),
        orjson.dumps({"bytes": list(SECRET[0].encode())}),
        SECRET[0].encode("unicode_escape"),
        b"project BLUEBIRD",
    ],
)
def test_a_character_of_a_secret_is_found_in_every_form(answer: bytes) -> None:
    assert leaks_in(b"an answer: " + answer)


def test_other_text_is_no_leak() -> None:
    assert leaks_in("an answer, water: 🎉 [phrase] 225".encode()) == 0


def test_a_server_that_holds_as_much_as_before_has_not_grown() -> None:
    assert grown(IDLE, IDLE, 0) == []


def test_stored_responses_may_grow_to_their_limit() -> None:
    full = State(100, 10, 2, {"tasks": 4, "StoredResponse": MAX_STORED})
    assert grown(IDLE, full, 0) == []


@pytest.mark.parametrize(
    ("state", "word"),
    [
        (State(102, 10, 2, IDLE.counts), "memory"),
        (State(100, 13, 2, IDLE.counts), "descriptors"),
        (State(100, 10, 3, IDLE.counts), "processes"),
        (State(100, 10, 2, {"tasks": 5, "StoredResponse": 1}), "tasks"),
        (State(100, 10, 2, {"tasks": 4, "StoredResponse": MAX_STORED + 1}), "StoredResponse"),
    ],
)
def test_growth_is_named(state: State, word: str) -> None:
    assert [error.split()[0] for error in grown(IDLE, state, 1)] == [word]


@pytest.mark.slow
async def test_a_short_soak_ends_well(tmp_path: Path) -> None:
    assert await soak(15, tmp_path, num_clients=2, seed=1, max_growth=500_000_000) == []
