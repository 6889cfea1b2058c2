"""Shared state in Redis, for several machines. Each operation is one script, which Redis runs alone.

All keys begin with `{weir}:`. The braces keep them in one slot of a cluster.

- `salt`; `clock`: a number that grows with each use of a response
- `response:CALLER:NAME`: a hash with `body`, `items`, `size`, `ids`. NAME is the owner's key and the id.
- `shelf:CALLER`: the names of a caller's responses, by last use
- `item:CALLER:KEY:ITEM`: responses with the item, by age, as `PLACE:ID`
- `num` and `size`: callers by the number and the bytes of their responses; `all`: both, of all callers
- `slot:NAME:START`: a count in the period that begins with a minute
- `report:SOURCE`: the number of the last report that added to counts
- `process:PROCESS`: there until the process's lease ends; `under_way:CALLER`: requests by process

A Redis with little memory may evict any of these keys. No script relies on one key because another is there:
a loop that frees room must end.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from hooks.api.extras import from_extra
from proxy.settings.storage import StateOptions
from proxy.storage.query import StateError
from proxy.storage.reports import REMEMBERED, Report
from proxy.storage.shared.protocol import LEASE, ItemIds, Owner, Slot, StoredResponse

with from_extra("redis", "redis", needed_by="--state redis://"):
    from redis.asyncio import BlockingConnectionPool, Redis
    from redis.exceptions import RedisError

MAX_CONNECTIONS = 16

DAY = 24 * 60 * 60

_COMMON = """
local P = '{weir}:'
local function resize(caller, num, size)
  if tonumber(redis.call('ZINCRBY', P..'num', num, caller)) <= 0 then
    redis.call('ZREM', P..'num', caller)
    redis.call('ZREM', P..'size', caller)
  else
    redis.call('ZINCRBY', P..'size', size, caller)
  end
  redis.call('HINCRBY', P..'all', 'num', num)
  redis.call('HINCRBY', P..'all', 'size', size)
end
local function remove(caller, key, id)
  local name = key..':'..id
  local found = redis.call('HMGET', P..'response:'..caller..':'..name, 'size', 'ids')
  if not found[1] then return 0 end
  for item, place in pairs(cjson.decode(found[2])) do
    redis.call('ZREM', P..'item:'..caller..':'..key..':'..item, place..':'..id)
  end
  redis.call('DEL', P..'response:'..caller..':'..name)
  redis.call('ZREM', P..'shelf:'..caller, name)
  resize(caller, -1, -tonumber(found[1]))
  return 1
end
"""

_PUT = """
local caller, key, id, body, items, size, ids = unpack(ARGV)
remove(caller, key, id)
local name, now = key..':'..id, redis.call('INCR', P..'clock')
redis.call('HSET', P..'response:'..caller..':'..name, 'body', body, 'items', items, 'size', size, 'ids', ids)
redis.call('ZADD', P..'shelf:'..caller, now, name)
for item, place in pairs(cjson.decode(ids)) do
  redis.call('ZADD', P..'item:'..caller..':'..key..':'..item, now, place..':'..id)
end
resize(caller, 1, tonumber(size))
local function score(order, of)
  return tonumber(redis.call('ZSCORE', P..order, of) or 0)
end
local function drop(from)
  local oldest = redis.call('ZRANGE', P..'shelf:'..from, 0, 0)[1]
  if not oldest then return resize(from, 0 - score('num', from), 0 - score('size', from)) end
  local colon = string.find(oldest, ':', 1, true)
  if remove(from, string.sub(oldest, 1, colon - 1), string.sub(oldest, colon + 1)) == 0 then
    redis.call('ZREM', P..'shelf:'..from, oldest)
  end
end
local function exceeds(order, most)
  return score(order, caller) > tonumber(most)
end
while exceeds('num', ARGV[8]) or exceeds('size', ARGV[9]) do drop(caller) end
for i, order in ipairs({'num', 'size'}) do
  while tonumber(redis.call('HGET', P..'all', order) or 0) > tonumber(ARGV[9 + i]) do
    local largest = redis.call('ZREVRANGE', P..order, 0, 0)[1]
    if largest then drop(largest) else redis.call('DEL', P..'all') end
  end
end
if redis.call('ZCARD', P..'num') == 0 then redis.call('DEL', P..'all') end
"""

_GET = """
local caller, name = ARGV[1], ARGV[2]..':'..ARGV[3]
local found = redis.call('HMGET', P..'response:'..caller..':'..name, 'body', 'items')
if not found[1] then return false end
redis.call('ZADD', P..'shelf:'..caller, redis.call('INCR', P..'clock'), name)
return found
"""

_ITEM = """
local caller, key = ARGV[1], ARGV[2]
local latest = redis.call('ZREVRANGE', P..'item:'..caller..':'..key..':'..ARGV[3], 0, 0)[1]
if not latest then return false end
local colon = string.find(latest, ':', 1, true)
local name = key..':'..string.sub(latest, colon + 1)
local items = redis.call('HGET', P..'response:'..caller..':'..name, 'items')
if not items then return false end
return {items, tonumber(string.sub(latest, 1, colon - 1))}
"""

_COUNT = """
local process, lease = ARGV[1], ARGV[2]
redis.call('SET', P..'process:'..process, 1, 'EX', lease)
redis.call('SET', P..'salt', ARGV[4], 'NX') -- it may have forgotten all
local totals = {}
for i = 5, #ARGV, 2 do
  local under_way, total = P..'under_way:'..ARGV[i], 0
  redis.call('HSET', under_way, process, ARGV[i + 1])
  redis.call('EXPIRE', under_way, ARGV[3])
  local counts = redis.call('HGETALL', under_way)
  for j = 1, #counts, 2 do
    if counts[j + 1] == '0' or redis.call('EXISTS', P..'process:'..counts[j]) == 0 then
      redis.call('HDEL', under_way, counts[j])
    else
      total = total + tonumber(counts[j + 1])
    end
  end
  table.insert(totals, total)
end
return totals
"""

_SPEND = """
local totals, report, number = {}, P..'report:'..ARGV[1], tonumber(ARGV[2])
local is_new = tonumber(redis.call('GET', report) or 0) < number
if is_new then redis.call('SET', report, number, 'EX', ARGV[3]) end
for i = 4, #ARGV, 5 do
  local slot = P..'slot:'..ARGV[i]..':'
  if is_new then
    redis.call('INCRBY', slot..ARGV[i + 2], ARGV[i + 4])
    redis.call('EXPIRE', slot..ARGV[i + 2], ARGV[i + 3])
  end
  table.insert(totals, tonumber(redis.call('GET', slot..ARGV[i + 1]) or 0))
  table.insert(totals, tonumber(redis.call('GET', slot..ARGV[i + 2]) or 0))
end
return totals
"""


class RedisState:
    def __init__(self, url: str, options: StateOptions) -> None:
        self.salt = b""
        self._options = options
        self._timeout = options.state_timeout
        pool = BlockingConnectionPool.from_url(url, max_connections=MAX_CONNECTIONS, timeout=None)
        self._redis: Any = Redis.from_pool(pool)

        def script(text: str) -> Any:
            return self._redis.register_script(_COMMON + text)

        self._put, self._get, self._item = map(script, (_PUT, _GET, _ITEM))
        self._count, self._spend = map(script, (_COUNT, _SPEND))
        self._remove = script("return remove(unpack(ARGV))")

    async def start(self) -> None:
        async with self._in_time():
            await self._redis.set("{weir}:salt", secrets.token_bytes(16), nx=True)
            self.salt = await self._redis.get("{weir}:salt")

    async def aclose(self) -> None:
        with suppress(StateError):
            async with self._in_time():
                await self._redis.aclose()

    async def put(self, owner: Owner, response_id: str, response: StoredResponse, ids: ItemIds) -> None:
        options, size = self._options, response.size(len(ids))
        if size > min(options.max_stored_bytes_per_caller, options.max_stored_bytes):
            return
        fields = response.body, response.items, size, json.dumps(dict(ids))
        mine = options.max_stored_responses_per_caller, options.max_stored_bytes_per_caller
        most = options.max_stored_responses, options.max_stored_bytes
        async with self._in_time():
            await self._put(args=(*owner, response_id, *fields, *mine, *most))

    async def get(self, owner: Owner, response_id: str) -> StoredResponse | None:
        async with self._in_time():
            found = await self._get(args=(*owner, response_id))
        return StoredResponse(*found) if found else None

    async def remove(self, owner: Owner, response_id: str) -> bool:
        async with self._in_time():
            return bool(await self._remove(args=(*owner, response_id)))

    async def item(self, owner: Owner, item_id: str) -> bytes | None:
        async with self._in_time():
            found = await self._item(args=(*owner, item_id))
        if not found:
            return None
        items, place = found
        item: bytes = items.split(b"\n")[place]
        return item

    async def count(self, process: str, requests: Mapping[str, int]) -> dict[str, int]:
        counts = [word for count in requests.items() for word in count]
        async with self._in_time():
            totals = await self._count(args=(process, round(LEASE), DAY, self.salt, *counts))
        return dict(zip(requests, totals, strict=True))

    async def spend(
        self, report: Report, minute: int, amounts: Mapping[Slot, int]
    ) -> dict[Slot, tuple[int, int]]:
        spent: list[str | int] = [*report, 60 * REMEMBERED]
        for slot, num in amounts.items():
            seconds = 60 * max(1, slot.until + 1 - minute)
            spent += slot.name, slot.previous, slot.start, seconds, num
        async with self._in_time():
            totals = await self._spend(args=spent)
        return dict(zip(amounts, zip(totals[::2], totals[1::2], strict=True), strict=True))

    async def forget(self, process: str) -> None:
        async with self._in_time():  # without its lease, none of its counts matters
            await self._redis.delete("{weir}:process:" + process)

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        """Raises `StateError` for the errors of Redis, and if it takes too long."""
        try:
            async with asyncio.timeout(self._timeout):
                yield
        except (RedisError, OSError, TimeoutError) as error:
            raise StateError(f"Redis does not answer ({type(error).__name__})") from error
