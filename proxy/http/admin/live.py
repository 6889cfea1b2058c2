"""`GET /admin/live`: what the server does now, as server-sent events, one JSON document a second.

The numbers are those of `/metrics`. All who watch share a snapshot, and none is made while nobody watches.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

import orjson
from aiohttp import web
from prometheus_client.core import Metric

from proxy.deployment.directory import PolicyEntry
from proxy.http.respond import EventStream
from proxy.service.peers import Peers
from proxy.service.service import SERVICE
from proxy.wire.openai.answer import event

INTERVAL = 1.0
"""Seconds between two snapshots."""

SHOWN = frozenset(
    {
        "weir_num_requests_running",
        "weir_num_requests_waiting",
        "weir_kv_blocks_used",
        "weir_kv_blocks",
        "weir_prompt_tokens",
        "weir_generation_tokens",
        "weir_requests",
        "weir_time_to_first_token_seconds",
        "weir_inter_token_latency_seconds",
        "weir_e2e_request_latency_seconds",
        "weir_hook_verdicts",
        "weir_hook_seconds",
        "weir_hook_held_seconds",
        "weir_hook_unjudged_tokens",
        "weir_upstream_outstanding",
        "weir_upstream_state",
        "weir_upstream_last_request_failed",
        "weir_upstream_requests",
        "weir_upstream_retries",
    }
)
"""The metrics of a snapshot."""

Labels = tuple[tuple[str, str], ...]
Samples = dict[tuple[str, Labels], float]
"""Values by name and labels, as in Prometheus' text format. Those of several processes add up."""
HookLabels = dict[str, str]
"""The policy and the name of a hook."""


@dataclass(frozen=True, slots=True)
class AskSamples:
    """A question: the samples of another process."""


def samples_of(metrics: Iterable[Metric]) -> Samples:
    """The samples of a snapshot in one process."""
    return {
        (sample.name, tuple(sample.labels.items())): sample.value
        for metric in metrics
        if metric.name in SHOWN
        for sample in metric.samples
    }


def shadow_hooks(policies: Iterable[PolicyEntry]) -> list[HookLabels]:
    """The hooks in shadow mode, by the labels that they have in the metrics where there are several
    policies."""
    return [
        {"policy": policy.name, "hook": hook.label}
        for policy in policies
        for hook in (*policy.settings.hooks, *policy.settings.allowed_hooks)
        if hook.mode == "shadow"
    ]


def sum_of(processes: list[Samples]) -> Samples:
    """The sums over all processes."""
    sums = dict(processes[0])
    for samples in processes[1:]:
        for key, value in samples.items():
            sums[key] = sums.get(key, 0.0) + value
    return sums


def by_name(samples: Samples) -> dict[str, list[tuple[dict[str, str], float]]]:
    """As JSON has them: by name, a list of pairs of labels and value."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for (name, labels), value in samples.items():
        found.setdefault(name, []).append((dict(labels), value))
    return found


def snapshot(processes: list[Samples], shadow: list[HookLabels], now: float) -> bytes:
    """The event with the sums over all processes. Its JSON has `time` (seconds since 1970), `processes`
    (their number), `shadow_hooks`, and `samples`."""
    samples = by_name(sum_of(processes))
    fields = {"time": now, "processes": len(processes), "shadow_hooks": shadow, "samples": samples}
    return event(orjson.dumps(fields))


class LiveFeed:
    """Makes a snapshot when somebody asks, and not more often than once in `INTERVAL`."""

    def __init__(
        self, collect: Callable[[], Iterable[Metric]], shadow: Callable[[], list[HookLabels]], peers: Peers
    ) -> None:
        """`shadow`: the hooks in shadow mode, which all processes have in common."""
        self._collect = collect
        self._shadow = shadow
        self._peers = peers
        self._making = asyncio.Lock()
        self._made_at = float("-inf")
        self._event = b""
        peers.answers[AskSamples] = self._answer

    async def event(self) -> bytes:
        """The event with the latest snapshot."""
        async with self._making:
            now = time.monotonic()
            if now - self._made_at > 0.9 * INTERVAL:
                theirs = await self._peers.ask(AskSamples())
                samples = [samples_of(self._collect()), *theirs]
                self._event = snapshot(samples, self._shadow(), time.time())
                self._made_at = now
            return self._event

    async def _answer(self, _: AskSamples) -> Samples:
        return samples_of(self._collect())


LIVE = web.AppKey("live", LiveFeed)


async def live(http: web.Request) -> web.StreamResponse:
    """Ends when the server stops."""
    service, feed = http.config_dict[SERVICE], http.config_dict[LIVE]
    keep_alive = service.settings.keep_alive_interval
    async with EventStream(http, keep_alive=keep_alive, headers={"Cache-Control": "no-store"}) as stream:
        with suppress(ConnectionError):  # the operator has disconnected
            while not service.stopping.is_set():
                await stream.write(await feed.event())
                await asyncio.sleep(INTERVAL)
        return stream.response
