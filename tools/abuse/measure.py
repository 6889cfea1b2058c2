"""One attack beside the well-behaved client, and what the client saw of it."""

import asyncio
import statistics
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import aiohttp
import orjson

from tools.abuse.attack import Attack, Breach, Run, Target
from tools.abuse.client import Seen
from tools.abuse.server import BAD_KEY, GOOD_KEY, Served

PROBE = "tools/abuse/hooks.py:Probe"
"""The hook that answers. A server allows it with `--allowed-hook`, and a request names it."""
GAUGES = ("weir_num_requests_running", "weir_num_requests_waiting", "weir_kv_blocks_used")
MAX_HEALTH = 0.25
"""Seconds that `/health` may take under attack: the median, over the windows, of the worst answer."""
CALM_SECONDS = 20.0
"""Seconds that a server gets to be idle again after an attack."""


def max_ttft(alone: float) -> float:
    """Seconds that a first token may take under attack."""
    return 4 * alone + 0.25


@dataclass(frozen=True)
class Result:
    """The effect of one attack. Times are in seconds, sizes in bytes."""

    name: str
    finding: str
    num_sent: int
    health: float
    """The median, over the windows, of the worst answer."""
    worst_health: float
    ttft: float
    """The median, over the windows, of the median."""
    failures: dict[str, int]
    breach: str | None
    is_calm: bool
    """Whether the server was idle again after the attack, with the descriptors that it had before."""
    grown: int
    """Growth of the server's memory, while the attack goes on."""
    logged: int
    """Growth of the server's log."""

    def errors(self, alone: float) -> list[str]:
        """Why the attack counts as a success. `alone`: the client's time to first token without an attack."""
        found = [self.breach] if self.breach else []
        if self.health > MAX_HEALTH:
            found.append(f"/health over {MAX_HEALTH * 1000:.0f} ms")
        if self.ttft > max_ttft(alone):
            found.append(f"first token over {max_ttft(alone) * 1000:.0f} ms")
        found += [f"{num} x {kind}" for kind, num in self.failures.items()]
        if not self.is_calm:
            found.append("not idle afterwards")
        if self.logged > 1_000_000:
            found.append(f"{self.logged / 1e6:.0f} MB of log")
        return found


async def windows_of(taken: Callable[[], Seen], num: int, seconds: float) -> list[Seen]:
    seen = []
    await asyncio.to_thread(taken)
    for _ in range(num):
        await asyncio.sleep(seconds)
        seen.append(await asyncio.to_thread(taken))
    return seen


def median_ttft(windows: Sequence[Seen]) -> float:
    medians = [statistics.median(seen.ttft) for seen in windows if seen.ttft]
    return statistics.median(medians) if medians else float("inf")


async def measured(
    attack: Attack, server: Served, taken: Callable[[], Seen], *, num_windows: int, seconds: float
) -> Result:
    """Run `attack` for `num_windows` windows of `seconds`, then wait until the server is idle again."""
    memory, logged, descriptors = server.memory, server.log_size, server.num_descriptors
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        target = Target(server.url, http, BAD_KEY, GOOD_KEY)
        breach: str | None = None
        running = asyncio.get_running_loop().create_task(run(attack, target))
        try:
            await until(lambda: target.num_sent or running.done())
            windows = await windows_of(taken, num_windows, seconds)
            grown = server.memory - memory
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                breach = await running
    async with aiohttp.ClientSession() as http:
        is_calm = await calm(server, http, lambda: server.num_descriptors <= descriptors + 8)
    failures: Counter[str] = Counter()
    for seen in windows:
        failures.update(seen.failures)
    worst = [max(seen.health, default=float("inf")) for seen in windows]
    return Result(
        name=attack.name,
        finding=attack.finding,
        num_sent=target.num_sent,
        health=statistics.median(worst),
        worst_health=max(worst),
        ttft=median_ttft(windows),
        failures=dict(failures),
        breach=breach,
        is_calm=is_calm,
        grown=grown,
        logged=server.log_size - logged,
    )


async def run(attack: Attack, target: Target) -> str | None:
    """The breach that ended the attack, if one did."""
    breach = None
    try:
        await attack.run(target)
    except* Breach as group:
        breach = str(_first_of(group))
    except* (aiohttp.ClientError, OSError):
        pass  # the server ended a connection that the attack needs
    return breach


@asynccontextmanager
async def run_for(run: Run, target: Target) -> AsyncIterator[None]:
    """Attack while the body of the `async with` runs. The body begins once something was sent."""
    async with asyncio.TaskGroup() as tasks:

        async def attack() -> None:
            await run(target)

        running = tasks.create_task(attack())
        await until(lambda: target.num_sent or running.done())
        try:
            yield
        finally:
            running.cancel()


def _first_of(error: BaseException) -> BaseException:
    return _first_of(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


async def until(is_so: Callable[[], object]) -> None:
    while not is_so():  # noqa: ASYNC110 - another process makes it so
        await asyncio.sleep(0.02)


async def calm(server: Served, http: aiohttp.ClientSession, is_so: Callable[[], bool] = lambda: True) -> bool:
    """Wait until the server runs nothing and `is_so`; False after `CALM_SECONDS`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CALM_SECONDS):
            await until(is_so)
            while not await is_idle(server, http):  # noqa: ASYNC110 - another process makes it so
                await asyncio.sleep(0.2)
            return True
    return False


async def is_idle(server: Served, http: aiohttp.ClientSession) -> bool:
    """Whether the engine runs nothing and all its blocks are free."""
    values = await metrics(server, http)
    return not any(values.get(name, 0) for name in GAUGES)


async def metrics(server: Served, http: aiohttp.ClientSession) -> dict[str, float]:
    """The server's metrics without labels. A server that does not answer counts as busy."""
    try:
        async with http.get(server.operator_url + "/metrics") as response:
            response.raise_for_status()
            lines = (await response.text()).splitlines()
    except (aiohttp.ClientError, OSError, TimeoutError):
        return {"weir_num_requests_running": 1}
    pairs = [line.split() for line in lines if not line.startswith("#") and "{" not in line]
    return {name: float(value) for name, value in pairs if name.startswith("weir_")}


async def counts(url: str, http: aiohttp.ClientSession, key: str) -> dict[str, int]:
    """Tasks and objects of the service's process (`hooks.Probe`)."""
    body = {"messages": [{"role": "user", "content": "?"}], "hooks": [PROBE]}
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    async with http.post(url + "/v1/chat/completions", data=orjson.dumps(body), headers=headers) as response:
        answer = await response.read()
    if response.status != 200:
        raise RuntimeError(answer.decode())
    found: dict[str, int] = orjson.loads(orjson.loads(answer)["choices"][0]["message"]["content"])
    return found
