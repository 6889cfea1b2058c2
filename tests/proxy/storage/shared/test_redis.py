"""A Redis that evicts keys."""

from contextlib import aclosing

import pytest

from proxy.storage.shared.protocol import Owner, StoredResponse
from tests.proxy.storage.shared.conftest import RedisPlace

STORED = StoredResponse(b"body", b"item")


async def test_a_redis_that_forgot_everything_is_told_the_salt_again(redis_place: RedisPlace) -> None:
    """A process that starts later has the same names for callers as those that run."""
    async with redis_place.connect() as first:
        await redis_place.wipe()
        await first.count("p1", {})
        async with redis_place.connect() as second:
            assert second.salt == first.salt != b""


@pytest.mark.parametrize(
    "evicted", ["response:*", "shelf:*", "item:*", "num", "size", "all", "[ns]*", "[!s]*"]
)
async def test_a_full_shelf_takes_responses_after_redis_evicted_keys(
    redis_place: RedisPlace, evicted: str
) -> None:
    """No script looks for ever for room that is not there."""
    from redis.asyncio import Redis

    bounds = {"max_stored_responses": 4, "max_stored_responses_per_caller": 3}
    await redis_place.wipe()
    async with aclosing(Redis.from_url(redis_place.url)) as client, redis_place.connect(**bounds) as state:
        owners = [Owner(caller, "k") for caller in ("a", "a", "a", "b")]
        for i, owner in enumerate(owners):
            await state.put(owner, f"r{i}", STORED, {"x": 0})
        await client.delete(*await client.keys("{weir}:" + evicted))
        for owner in owners:
            assert await state.item(owner, "x") in (None, b"item")
        for i, owner in enumerate(2 * owners):
            await state.put(owner, f"later{i}", STORED, {"x": 0})
        assert await state.get(owners[-1], "later7") == STORED
