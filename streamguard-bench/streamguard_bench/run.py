"""Runs the scripts against a target, and counts what the judges find."""

import asyncio
import statistics
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import aiohttp

from streamguard_bench import judges
from streamguard_bench.client import Client, Seen
from streamguard_bench.draw import Draw
from streamguard_bench.judges import Fault
from streamguard_bench.scripts import CUTS, Script
from streamguard_bench.target import Running, Target, TargetError, running
from streamguard_bench.upstream import Asked, Server, Upstream

TOGETHER = 8
"""Requests at the same time, where no time is measured."""
LEAVE_SECONDS = 1.0
"""So long after its request a client leaves. Its answer takes six seconds or more."""
LEFT_SECONDS = 3.0
"""A server has so long to notice that its client has left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much to run."""

    leaks: int = 40
    """Scripts with a value, for each channel."""
    harmless: int = 4
    others: int = 6
    paced: int = 16
    """Streams at the same time while time is measured. 0: no time is measured."""
    pace: float = 0.02
    """Seconds between two pieces of these streams."""
    max_seconds: float = 60.0
    """An answer that has not ended by then hangs."""


@dataclass(slots=True)
class Times:
    """Times of harmless streams at the pace of a model. Unit: seconds."""

    first: float
    """From the request to the first text, the median."""
    held_p50: float
    held_p99: float
    """From the upstream's piece to its last character at the client."""
    held_most: int
    """Most characters that the upstream had written and the client did not have."""
    cpu_per_piece: float
    memory: int
    """Unit: bytes, after the run."""


@dataclass(slots=True)
class Result:
    name: str
    error: str = ""
    """Why the target was not run."""
    channels: dict[str, dict[str, int]] = field(default_factory=dict)
    """By channel, how often a value was `leaked`, came `in part`, was `withheld`, `refused`, or `absent`."""
    cuts: dict[str, list[int]] = field(default_factory=dict)
    """By cut: streams with a value, and those that let it or a part of it out."""
    faults: dict[str, int] = field(default_factory=dict)
    """By judge and place, as `judge: place`."""
    tried: dict[str, int] = field(default_factory=dict)
    """By kind of script."""
    after_first: list[int] = field(default_factory=list)
    """For each stream that let a value out in part: the characters of it that came."""
    times: Times | None = None
    direct: Times | None = None
    """The same client on the upstream, without a server between."""
    failures: dict[str, dict[str, int]] = field(default_factory=dict)
    """By kind of failure: answers that `leaked`, `ended`, were `refused`, or `hung`, or that the server
    `did not start`."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Bench:
    """One target and the upstream that it is set up with."""

    def __init__(self, target: Target, seed: int, size: Size) -> None:
        self._target = target
        self._draw = Draw(seed, target.guards, target.apis)
        self._size = size
        self._upstream = Upstream()
        self._faults: Counter[str] = Counter()

    async def run(self) -> Result:
        """Raises `TargetError` if the target does not start."""
        result = Result(self._target.name)
        async with (
            Server(self._upstream.app()) as server,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
        ):
            async with running(self._target, server.url) as target:
                await self._judge(result, self._client(http, target))
                if self._size.paced:
                    await self._time(result, target, http, server.url)
            for how in self._target.failures:
                try:
                    async with running(self._target.failing(how), server.url) as target:
                        result.failures[how] = await self._fail(self._client(http, target))
                except TargetError:
                    result.failures[how] = {"did not start": 1}
        result.faults = dict(sorted(self._faults.items()))
        return result

    def _client(self, http: aiohttp.ClientSession, target: Running) -> Client:
        return self._client_of(http, target.url, target.headers)

    def _client_of(self, http: aiohttp.ClientSession, url: str, headers: Mapping[str, str]) -> Client:
        tokens = self._upstream.tokens
        return Client(http, url, self._target.model, tokens, headers, self._size.max_seconds)

    async def _judge(self, result: Result, client: Client) -> None:
        size = self._size
        scripts = [*self._draw.leaks(size.leaks)]
        channels: dict[str, Counter[str]] = {script.channel: Counter() for script in scripts}
        cuts = {cut: [0, 0] for cut in CUTS}

        def leak(script: Script, seen: Seen, asked: Asked) -> None:
            outcome = judges.outcome(script, seen)
            channels[script.channel][outcome] += 1
            if seen.is_hanging:
                self._count([Fault("hangs", script.channel)])
            if script.is_streamed:
                cuts[script.cut][0] += 1
                cuts[script.cut][1] += outcome in ("leaked", "in part")
            found = [*judges.leaks(script, seen)]
            if outcome == "in part":
                result.after_first.append(
                    max(judges.longest_part(script.secret, text) for _, text in seen.texts())
                )
            self._count([*found, *judges.calls(script, seen)])

        def harmless(script: Script, seen: Seen, asked: Asked) -> None:
            found = [*judges.changes(script, seen), *judges.calls(script, seen)]
            if self._target.prompts == "as they are":
                found += judges.requested(script, asked)
            self._count(found)

        def restored(script: Script, seen: Seen, asked: Asked) -> None:
            self._count(judges.restored(script, seen, asked, comes_back=self._target.prompts == "restored"))

        await self._all(result, scripts, client.ask, leak)
        await self._all(result, self._draw.harmless(size.harmless), client.ask, harmless)
        await self._all(
            result,
            self._draw.broken(size.others),
            client.ask,
            lambda _, seen, __: self._count(judges.broken(seen)),
        )
        await self._leave(result, client)
        if self._target.prompts != "as they are":
            await self._all(result, self._draw.restored(2 * size.others), client.ask, restored)
        result.channels = {name: dict(counts) for name, counts in channels.items()}
        result.cuts = cuts

    def _count(self, faults: Iterable[Fault]) -> None:
        self._faults.update(f"{fault.judge}: {fault.place}" for fault in dict.fromkeys(faults))

    async def _all(
        self,
        result: Result,
        scripts: Iterable[Script],
        ask: Callable[[Script], Awaitable[Seen]],
        judge: Callable[[Script, Seen, Asked], None],
    ) -> None:
        gate = asyncio.Semaphore(TOGETHER)

        async def one(script: Script) -> None:
            async with gate:
                asked = self._upstream.play(script)
                seen = await ask(script)
            result.tried[script.kind] = result.tried.get(script.kind, 0) + 1
            judge(script, seen, asked)
            self._upstream.forget(script)

        async with asyncio.TaskGroup() as group:
            for script in scripts:
                group.create_task(one(script))

    async def _leave(self, result: Result, client: Client) -> None:
        async def ask(script: Script) -> Seen:
            asked = self._upstream.asked(script)
            seen = await client.ask(script, leave_after=LEAVE_SECONDS)
            try:
                async with asyncio.timeout(LEFT_SECONDS):
                    await asked.is_over.wait()
            except TimeoutError:
                pass
            return seen

        def judge(script: Script, seen: Seen, asked: Asked) -> None:
            self._count(judges.left(seen, asked))

        await self._all(result, self._draw.left(self._size.others), ask, judge)

    async def _fail(self, client: Client) -> dict[str, int]:
        """What became of answers with a value while the guard fails."""
        counts: Counter[str] = Counter()
        scripts = [s for s in self._draw.leaks(self._size.others) if s.channel.startswith("content")]

        def judge(script: Script, seen: Seen, asked: Asked) -> None:
            outcome = judges.outcome(script, seen)
            if outcome in ("leaked", "in part"):
                counts["leaked"] += 1
            elif seen.is_hanging:
                counts["hung"] += 1
            else:
                counts["refused" if seen.is_refused or seen.error else "ended"] += 1

        await self._all(Result(""), scripts, client.ask, judge)
        return dict(counts)

    async def _time(
        self, result: Result, target: Running, http: aiohttp.ClientSession, upstream: str
    ) -> None:
        client, direct = self._client(http, target), self._client_of(http, f"{upstream}/v1", {})
        await self._paced(client, target, 2)  # the first answers of a server take longer
        result.times = await self._paced(client, target, self._size.paced)
        result.direct = await self._paced(direct, None, self._size.paced)

    async def _paced(self, client: Client, target: Running | None, count: int) -> Times | None:
        scripts = [*self._draw.paced(count, self._size.pace)]
        asked = [self._upstream.play(script) for script in scripts]
        cpu = target.cpu_seconds() if target else 0.0
        seen = await asyncio.gather(*map(client.ask, scripts))
        cpu = (target.cpu_seconds() if target else 0.0) - cpu
        for script in scripts:
            self._upstream.forget(script)
        first = [one.pieces[0][0] - one.began for one in seen if one.pieces]
        held = [seconds for one, a in zip(seen, asked, strict=True) for seconds in delays(a, one)]
        if not first or len(held) < 2:
            return None
        return Times(
            first=statistics.median(first),
            held_p50=statistics.median(held),
            held_p99=statistics.quantiles(held, n=100)[98],
            held_most=max(most_held(a, one) for one, a in zip(seen, asked, strict=True)),
            cpu_per_piece=cpu / sum(len(script.pieces) for script in scripts),
            memory=target.memory() if target else 0,
        )


def delays(asked: Asked, seen: Seen) -> list[float]:
    """For each piece of content that came: the seconds from its writing to when the client had it whole."""
    arrivals, total = [], 0
    for at, channel, _, text in seen.pieces:
        if channel == "content":
            total += len(text)
            arrivals.append((total, at))
    found, written, i = [], 0, 0
    for at, piece in asked.sent:
        if piece.channel != "content":
            continue
        written += len(piece.text)
        while i < len(arrivals) and arrivals[i][0] < written:
            i += 1
        if i == len(arrivals):
            break
        found.append(max(0.0, arrivals[i][1] - at))
    return found


def most_held(asked: Asked, seen: Seen) -> int:
    """Most characters of content that the upstream had written and the client did not have."""
    events = [(at, len(piece.text)) for at, piece in asked.sent if piece.channel == "content"]
    events += [(at, -len(text)) for at, channel, _, text in seen.pieces if channel == "content"]
    held = most = 0
    for _, change in sorted(events):
        held += change
        most = max(most, held)
    return most
