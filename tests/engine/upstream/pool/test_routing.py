"""Which replica gets a request."""

import random
from collections import Counter
from dataclasses import replace
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import GenerationRequest
from engine.upstream.pool.routing import (
    LOAD_BOUND,
    SLACK,
    Candidate,
    Keys,
    LeastOutstanding,
    PrefixAffinity,
    Routing,
    prompt_keys,
)

AFFINITY = PrefixAffinity()
SYSTEM = {"role": "system", "content": "You help. " * 100}


def candidates(number: int, weights: dict[int, float] | None = None) -> list[Candidate]:
    return [Candidate(f"replica {i}", (weights or {}).get(i, 1.0)) for i in range(number)]


def chat(*texts: str, **fields: Any) -> GenerationRequest:
    """A chat in which the user and the assistant take turns."""
    turns = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]
    asked: dict[str, Any] = {"messages": (SYSTEM, *turns), **fields}
    return GenerationRequest(request_id="r", model="m", endpoint="chat", **asked)


def completion(*prompts: Any) -> GenerationRequest:
    return GenerationRequest(request_id="r", model="m", endpoint="completions", prompts=prompts)


def chosen(routing: Routing, request: GenerationRequest, among: list[Candidate]) -> str:
    return routing.choose(routing.keys(request), among).name


def test_the_turns_of_a_chat_keep_their_replica() -> None:
    pool = candidates(16)
    for number in range(50):
        turns = [f"question {number}", "answer", "and then?", "more", "what else?"]
        asked = {chosen(AFFINITY, chat(*turns[:length]), pool) for length in (1, 3, 5)}
        assert len(asked) == 1


def test_chats_with_one_system_prompt_spread() -> None:
    counts = Counter(chosen(AFFINITY, chat(f"question {i}"), candidates(4)) for i in range(1000))
    assert len(counts) == 4
    assert max(counts.values()) < 1.25 * 250


def test_chats_that_begin_with_one_message_part_if_their_replica_is_full() -> None:
    pool = candidates(16)
    first = AFFINITY.choose(AFFINITY.keys(chat("hello")), pool)
    first.outstanding = 100
    asked = [chat("hello", "hello", f"question {i}") for i in range(100)]
    names = [chosen(AFFINITY, request, pool) for request in asked]
    assert first.name not in names
    assert len(set(names)) > 8
    grown = [chat("hello", "hello", f"question {i}", "answer", "and then?") for i in range(100)]
    assert [chosen(AFFINITY, request, pool) for request in grown] == names


@pytest.mark.parametrize(
    "other",
    [
        chat("hello", cache_salt="a"),
        chat("hello", tools=({"type": "function", "function": {"name": "f"}},)),
        replace(chat("hello"), model="other"),
        chat("hello", messages=({"role": "system", "content": "x"}, {"role": "user", "content": "hello"})),
        chat("hello", messages=(SYSTEM, {"role": "assistant", "content": "hello"})),
        completion("hello"),
    ],
)
def test_all_that_changes_the_prompt_or_the_cache_changes_the_key(other: GenerationRequest) -> None:
    assert prompt_keys(other)[0] != prompt_keys(chat("hello"))[0]


def test_the_order_of_a_messages_fields_does_not_matter() -> None:
    messages = ({"role": "user", "content": "a"}, {"content": "a", "role": "user"})
    one, other = (prompt_keys(chat("", messages=(message,))) for message in messages)
    assert one == other


def test_questions_about_one_long_document_have_one_key() -> None:
    document = "word " * 2000
    assert prompt_keys(chat(document + "why?")) == prompt_keys(chat(document + "when?"))


@pytest.mark.parametrize("kind", ["text", "ids"])
def test_a_text_that_grows_changes_its_key_only_when_it_doubles(kind: str) -> None:
    text = "".join(map(chr, range(97, 1097)))
    ids = tuple(range(1000))
    keys = [prompt_keys(completion((text if kind == "text" else ids)[:n])) for n in range(256, 1000)]
    assert len(set(keys)) == 2


def test_every_process_has_the_same_keys_and_scores() -> None:
    assert prompt_keys(chat("hello", "hi", "and?")) == (12758737938680412449, 13138226460435020748)
    assert [chosen(AFFINITY, chat(f"question {i}"), candidates(10)) for i in range(5)] == [
        "replica 2",
        "replica 0",
        "replica 7",
        "replica 9",
        "replica 1",
    ]


@given(st.sets(st.integers(0, 9), min_size=1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_a_replica_that_leaves_moves_only_its_own_keys(left: set[int], first: int, second: int) -> None:
    pool = candidates(10)
    name = AFFINITY.choose((first, second), pool).name
    rest = [candidate for i, candidate in enumerate(pool) if i in left]
    moved = AFFINITY.choose((first, second), rest).name
    assert moved == name or name not in {candidate.name for candidate in rest}


def test_a_replica_gets_keys_by_its_weight() -> None:
    pool = candidates(4, {0: 3.0})
    counts = Counter(AFFINITY.choose(keys, pool).name for keys in random_keys(4000))
    assert counts["replica 0"] / 4000 == pytest.approx(0.5, abs=0.05)


@given(
    st.lists(st.tuples(st.integers(0, 100), st.floats(0.1, 10)), min_size=1, max_size=20),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
)
def test_no_replica_goes_above_the_load_bound(loads: list[tuple[int, float]], one: int, two: int) -> None:
    pool = candidates(len(loads))
    for candidate, (outstanding, weight) in zip(pool, loads, strict=True):
        candidate.outstanding, candidate.weight = outstanding, weight
    taken = AFFINITY.choose((one, two), pool)
    total = 1 + sum(candidate.outstanding for candidate in pool)
    share = taken.weight / sum(candidate.weight for candidate in pool)
    assert taken.outstanding + 1 <= ceil(LOAD_BOUND * total * share + 1e-6) + SLACK


def test_nobody_is_overrun_when_a_replica_goes_and_comes_back() -> None:
    """Chats run at once and move to the others while one of four replicas is away."""
    pool = candidates(4)
    running: list[Candidate] = []
    seeded = random.Random(1)
    keys = random_keys(200)
    for turn in range(30):
        present = pool[1:] if 10 <= turn < 20 else pool
        counts: Counter[str] = Counter()
        for key in keys:
            if len(running) >= 40:
                running.pop(seeded.randrange(40)).outstanding -= 1
            running.append(AFFINITY.choose(key, present))
            running[-1].outstanding += 1
            counts[running[-1].name] += 1
        assert max(counts.values()) <= 1.5 * len(keys) / len(present)


def random_keys(number: int) -> list[Keys]:
    seeded = random.Random(1)
    return [(seeded.getrandbits(64), seeded.getrandbits(64)) for _ in range(number)]


@pytest.mark.parametrize(
    ("loads", "expected"), [((2, 1, 4), {1}), ((1, 1, 5), {0, 1}), ((0, 0, 1), {0, 1, 2})]
)
def test_least_takes_the_replica_with_fewest_requests_for_its_weight(
    loads: tuple[int, ...], expected: set[int]
) -> None:
    pool = candidates(3, {2: 2.0})
    for candidate, outstanding in zip(pool, loads, strict=True):
        candidate.outstanding = outstanding
    names = {chosen(LeastOutstanding(), chat("a"), pool) for _ in range(200)}
    assert names == {f"replica {i}" for i in expected}


def computed(routing: Routing, number: int = 40, turns: int = 5) -> int:
    """The messages that replicas compute for chats that take turns: those behind the longest known prompt."""
    seeded = random.Random(1)
    random.seed(1)  # for ties of least outstanding
    pool = candidates(4)
    known: dict[str, set[tuple[str, ...]]] = {candidate.name: set() for candidate in pool}
    running: list[Candidate] = []
    total = 0
    for length in range(1, 2 * turns, 2):
        for number_of_chat in seeded.sample(range(number), number):
            texts = tuple(f"chat {number_of_chat}, message {i}" for i in range(length))
            running.append(routing.choose(routing.keys(chat(*texts)), pool))
            running[-1].outstanding += 1
            own = known[running[-1].name]
            total += length - next((n for n in range(length, 0, -1) if texts[:n] in own), 0)
            own |= {texts[:n] for n in range(1, length + 1)}
            if len(running) > 16:
                running.pop(seeded.randrange(16)).outstanding -= 1
    return total


def test_with_affinity_replicas_compute_less_than_with_least_outstanding() -> None:
    assert computed(PrefixAffinity()) < 0.75 * computed(LeastOutstanding())
