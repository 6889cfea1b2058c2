"""Every place for shared state does the same, on real servers."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.settings.storage import StateOptions
from proxy.storage.query import StateError
from proxy.storage.shared import sql
from proxy.storage.shared.protocol import Owner, State, StoredResponse
from tests.helpers import examples, options_with
from tests.proxy.storage.shared.conftest import Place

BOUNDS = {
    "max_stored_responses": 6,
    "max_stored_responses_per_caller": 4,
    "max_stored_bytes": 5000,
    "max_stored_bytes_per_caller": 3500,
}


@dataclass
class Shelves:
    """The rules of the state, as plainly as they can be written."""

    options: StateOptions
    kept: dict[tuple[Owner, str], tuple[StoredResponse, dict[str, int], int]] = field(default_factory=dict)
    """The latest used last. Each with its items' places, and the time when it was stored."""
    now: int = 0

    def put(self, owner: Owner, name: str, response: StoredResponse, ids: dict[str, int]) -> None:
        options, size = self.options, response.size(len(ids))
        if size > min(options.max_stored_bytes_per_caller, options.max_stored_bytes):
            return
        self.now += 1
        self.kept.pop((owner, name), None)
        self.kept[owner, name] = response, ids, self.now
        most = options.max_stored_responses_per_caller, options.max_stored_bytes_per_caller
        while self.num(owner.caller) > most[0] or self.size(owner.caller) > most[1]:
            self.drop(owner.caller)
        callers = {owner.caller for owner, _ in self.kept}
        while len(self.kept) > options.max_stored_responses:
            self.drop(max(callers, key=lambda caller: (self.num(caller), caller)))
        while sum(map(self.size, callers)) > options.max_stored_bytes:
            self.drop(max(callers, key=lambda caller: (self.size(caller), caller)))

    def num(self, caller: str) -> int:
        return sum(owner.caller == caller for owner, _ in self.kept)

    def size(self, caller: str) -> int:
        kept = ((owner, *one) for (owner, _), one in self.kept.items())
        return sum(one.size(len(ids)) for owner, one, ids, _ in kept if owner.caller == caller)

    def drop(self, caller: str) -> None:
        del self.kept[next(name for name in self.kept if name[0].caller == caller)]

    def get(self, owner: Owner, name: str) -> StoredResponse | None:
        found = self.kept.pop((owner, name), None)
        if found is None:
            return None
        self.kept[owner, name] = found
        return found[0]

    def item(self, owner: Owner, item: str) -> bytes | None:
        stored = (
            (at, one, ids) for (by, _), (one, ids, at) in self.kept.items() if by == owner and item in ids
        )
        latest = max(stored, default=None, key=lambda one: one[0])
        return latest and latest[1].items.split(b"\n")[latest[2][item]]


NAMES = st.sampled_from(["a", "b", "c"])
OWNERS = st.builds(Owner, NAMES, st.sampled_from(["k", "l"]))
RESPONSES = st.sampled_from(["r", "s", "t", "u", "v"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "put", "put", "get", "item", "remove"]),
        OWNERS,
        RESPONSES,
        st.lists(st.sampled_from(["x", "y", "z"]), min_size=1, max_size=2, unique=True),
        st.sampled_from([0, 0, 300, 1500]),
    ),
    min_size=12,
    max_size=40,
)


def response(name: str, number: int, items: list[str], size: int) -> StoredResponse:
    lines = [f"{item} of {name} {number}".encode() for item in items]
    return StoredResponse(f"{name} {number}".encode().ljust(size, b"."), b"\n".join(lines))


@given(steps=STEPS)
@examples(25)
async def test_what_is_stored_is_what_the_rules_say(
    place: Place, steps: list[tuple[str, Owner, str, list[str], int]]
) -> None:
    await place.wipe()
    rules = Shelves(options_with(StateOptions, **BOUNDS))
    async with place.connect(**BOUNDS) as one, place.connect(**BOUNDS) as other:
        for number, (step, owner, name, items, size) in enumerate(steps):
            state = (one, other)[number % 2]
            ids = {item: place for place, item in enumerate(items)}
            match step:
                case "put":
                    stored = response(name, number, items, size)
                    rules.put(owner, name, stored, ids)
                    await state.put(owner, name, stored, ids)
                case "get":
                    assert await state.get(owner, name) == rules.get(owner, name)
                case "remove":
                    assert await state.remove(owner, name) == (
                        rules.kept.pop((owner, name), None) is not None
                    )
                case "item":
                    for item in "xyz":
                        assert await state.item(owner, item) == rules.item(owner, item)
        for owner in {owner for owner, _ in ALL}:
            for item in "xyz":
                assert await one.item(owner, item) == rules.item(owner, item)
        for owner, name in list(rules.kept):
            assert await other.get(owner, name) == rules.get(owner, name)
        found = [(owner, name) for owner, name in ALL if await one.get(owner, name) is not None]
        assert set(found) == set(rules.kept)


ALL = [(Owner(caller, key), name) for caller in "abc" for key in "kl" for name in "rstuv"]


async def test_all_that_share_it_have_the_same_salt_and_keep_it(place: Place) -> None:
    await place.wipe()
    async with place.connect() as one, place.connect() as other:
        assert one.salt == other.salt
        assert len(one.salt) == 16
    async with place.connect() as later:
        assert later.salt == one.salt
    await place.wipe()
    async with place.connect() as another:
        assert another.salt != one.salt


async def test_many_processes_open_a_new_place_at_once(place: Place) -> None:
    for _ in range(5):
        await place.wipe()
        async with AsyncExitStack() as stack:
            opening = [stack.enter_async_context(place.connect()) for _ in range(8)]
            states = await asyncio.gather(*opening)
            assert len({state.salt for state in states}) == 1


async def test_a_response_outlives_the_processes(place: Place) -> None:
    await place.wipe()
    owner, stored = Owner("a", "k"), StoredResponse(b"\x00body", b"item\nlast")
    async with place.connect() as state:
        await state.put(owner, "r", stored, {"x": 1})
    async with place.connect() as state:
        assert await state.get(owner, "r") == stored
        assert await state.item(owner, "x") == b"last"


async def test_counts_add_up_over_processes(place: Place) -> None:
    await place.wipe()
    async with place.connect() as one, place.connect() as other:
        assert await one.count("p1", {"a": 2, "b": 1}) == {"a": 2, "b": 1}
        assert await other.count("p2", {"a": 3}) == {"a": 5}
        assert await one.count("p1", {"a": 0, "b": 1}) == {"a": 3, "b": 1}
        await other.forget("p2")
        assert await one.count("p1", {"a": 1}) == {"a": 1}
        assert await other.count("p2", {}) == {}


async def test_counts_of_a_process_that_says_nothing_are_forgotten(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.wipe()
    monkeypatch.setattr(sql, "LEASE", 1.0)
    if place.url.startswith("redis"):
        monkeypatch.setattr("proxy.storage.shared.redis.LEASE", 1.0)
    async with place.connect() as one, place.connect() as other:
        assert await one.count("dies", {"a": 7}) == {"a": 7}
        while (await other.count("lives", {"a": 1}))["a"] != 1:
            await asyncio.sleep(0.05)


async def test_processes_at_once_never_admit_too_many(place: Place) -> None:
    """Each counts one request more than it was told, at the same time as all others."""
    await place.wipe()
    seen: Counter[int] = Counter()

    async def process(number: int, state: State) -> None:
        for own in range(1, 6):
            seen[(await state.count(f"p{number}", {"a": own}))["a"]] += 1

    async with AsyncExitStack() as stack:
        states = [await stack.enter_async_context(place.connect()) for _ in range(4)]
        await asyncio.gather(*(process(number, state) for number, state in enumerate(states)))
    assert seen == Counter(range(1, 21)), "each sum once: no two calls saw the same"


async def test_a_place_that_hangs_is_given_up_and_used_again(place: Place) -> None:
    await place.wipe()
    owner, stored = Owner("a", "k"), StoredResponse(b"body", b"item")
    async with place.connect() as state:
        await state.put(owner, "r", stored, {})
    async with AsyncExitStack() as stack:
        hasty: State | None = None
        while hasty is None:  # a slow machine may take longer
            with suppress(StateError):
                hasty = await stack.enter_async_context(place.connect(state_timeout=0.5))
        with place.hanging():
            asked = [hasty.count("p", {"a": 1}) for _ in range(20)]
            for error in await asyncio.gather(hasty.get(owner, "r"), *asked, return_exceptions=True):
                assert isinstance(error, StateError)
        while True:
            with suppress(StateError):
                assert await hasty.get(owner, "r") == stored
                break
