"""`/metrics`, over the service, as Prometheus reads it."""

import asyncio
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.protocol import EngineStats, RequestError, Usage
from engine.protocol.stats import Histogram
from hooks import emit, hold, suppress, terminate
from proxy.deployment.deployment import Deployment
from proxy.deployment.directory import Directory, PolicyEntry
from proxy.settings.model import ModelSettings
from proxy.settings.policy import PolicySettings
from tests.helpers import Script, ScriptedEngine, make_deltas, pipeline_of
from tests.proxy.conftest import CHAT, COMPLETION, Client, Serve

CHATS, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MODERATIONS = "/v1/moderations"


class Samples:
    """The reported values: `samples("name", label="value")`; 0 if there is no such sample."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.values = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        return self.values.get((name, frozenset(labels.items())), 0.0)

    def count(self, name: str, **labels: str) -> float:
        return self(f"{name}_count", **labels)


async def scrape(client: Client) -> Samples:
    status, body = await client.get("/metrics")
    assert status == 200
    return Samples(body.decode())


def counted(*texts: str) -> Any:
    def script(_: Any) -> list[Any]:
        deltas = make_deltas(texts)
        return [*deltas[:-1], type(deltas[-1])(finish_reason="length", usage=Usage(7, len(texts)))]

    return script


@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_is_counted_when_it_has_ended(serve: Serve, stream: bool) -> None:
    client = await serve(ScriptedEngine(counted("a", "b", "c")))
    for path, body in ((CHATS, CHAT), (CHATS, CHAT), (COMPLETIONS, COMPLETION)):
        async with client.http.post(client.url + path, json={**body, "stream": stream}) as response:
            await response.read()
    samples = await scrape(client)
    assert samples("weir_requests_total", endpoint="chat", outcome="finished") == 2
    assert samples("weir_request_success_total", endpoint="chat", finished_reason="length") == 2
    assert samples.count("weir_time_to_first_token_seconds", endpoint="chat") == 2
    assert samples.count("weir_inter_token_latency_seconds", endpoint="chat") == 4
    assert samples.count("weir_e2e_request_latency_seconds", endpoint="chat") == 2
    assert samples("weir_request_prompt_tokens_sum", endpoint="chat") == 14
    assert samples("weir_request_generation_tokens_sum", endpoint="chat") == 6
    assert samples("weir_request_generation_tokens_bucket", endpoint="chat", le="2.0") == 0
    assert samples("weir_request_generation_tokens_bucket", endpoint="chat", le="5.0") == 2
    assert samples("weir_request_generation_tokens_sum", endpoint="completions") == 3


async def test_latencies_are_measured_at_the_client(serve: Serve) -> None:
    """Held text counts when it is released, and withheld text never counts."""
    hook = Script(lambda c: emit(c.pending) if c.is_final or "c" in c.text_diff else hold())
    client = await serve(ScriptedEngine(counted("a", "b", "c", "d")), hook)
    await client.stream(CHATS, CHAT)
    samples = await scrape(client)
    # The client gets "abc", and then "d" with the end.
    assert samples.count("weir_time_to_first_token_seconds", endpoint="chat") == 1
    assert samples.count("weir_inter_token_latency_seconds", endpoint="chat") == 1
    assert samples("weir_hook_verdicts_total", hook="hook0", action="hold") == 3
    assert samples("weir_hook_seconds_total", hook="hook0") > 0
    assert samples.count("weir_hook_call_seconds", hook="hook0") == 5  # the end has a call, too
    assert samples("weir_hook_call_seconds_sum", hook="hook0") == pytest.approx(
        samples("weir_hook_seconds_total", hook="hook0")
    )


async def test_requests_are_counted_by_outcome(serve: Serve) -> None:
    broken = RequestError("no")
    scripts = {
        "good": counted("a"),
        "terminated": counted("x"),
        "refused": lambda _: [broken],
        "failed": lambda _: [RuntimeError("oops")],
    }
    client = await serve(
        ScriptedEngine(lambda request: scripts[request.user or ""](request)),
        Script(lambda c: terminate("found") if "x" in c.text_diff else emit(c.pending)),
    )
    for user in scripts:
        await client.post(CHATS, {**CHAT, "user": user})
    samples = await scrape(client)
    for outcome, count in {"finished": 2, "refused": 1, "failed": 1, "closed": 0}.items():
        assert samples("weir_requests_total", endpoint="chat", outcome=outcome) == count
    for reason in ("length", "content_filter"):
        assert samples("weir_request_success_total", endpoint="chat", finished_reason=reason) == 1
    assert samples.count("weir_e2e_request_latency_seconds", endpoint="chat") == 2


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHATS, {**CHAT, "top_logprobs": 2}),
        (CHATS, {**CHAT, "chat_template": "no"}),
        (MODERATIONS, {"input": "a", "model": "unknown"}),
        (MODERATIONS, {"input": [{"type": "image_url", "image_url": {"url": "http://a"}}]}),
    ],
)
async def test_a_request_that_its_endpoint_refuses_is_counted(
    serve: Serve, path: str, body: dict[str, Any]
) -> None:
    client = await serve(ScriptedEngine(counted("a")), Script(lambda c: emit(c.pending)), moderations=True)
    status, _, _ = await client.post(path, body)
    assert status in (400, 404)
    endpoint = "chat" if path == CHATS else "moderations"
    assert (await scrape(client))("weir_requests_total", endpoint=endpoint, outcome="refused") == 1


async def test_a_client_that_leaves_is_counted_as_closed(serve: Serve) -> None:
    client = await serve(ScriptedEngine(lambda _: [*make_deltas(["a"], finish=False), asyncio.Event()]))
    async with client.http.post(client.url + CHATS, json={**CHAT, "stream": True}) as response:
        await response.content.readline()
        response.close()
    while not (await scrape(client))("weir_requests_total", endpoint="chat", outcome="closed"):
        await asyncio.sleep(0.01)


async def test_the_values_of_the_engine_are_reported_unchanged(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue_time, schedule = Histogram([0.5, 1.0]), Histogram([0.1])
    for seconds in (0.2, 0.7, 9.0):
        queue_time.observe(seconds)
    stats = EngineStats(
        num_running=3,
        num_waiting=2,
        kv_blocks_used=5,
        kv_blocks=20,
        preemptions_total=4,
        computed_tokens_total=7,
        prefix_cache_queries_total=100,
        prefix_cache_hits_total=60,
        step_seconds={"schedule": schedule},
        histograms={"request_queue_time_seconds": queue_time},
    )
    engine = ScriptedEngine(lambda _: [])
    monkeypatch.setattr(engine, "stats", lambda: stats)
    samples = await scrape(await serve(engine))
    for name, value in {
        "weir_num_requests_running": 3,
        "weir_num_requests_waiting": 2,
        "weir_kv_cache_usage_perc": 0.25,
        "weir_num_preemptions_total": 4,
        "weir_computed_tokens_total": 7,
        "weir_prefix_cache_queries_total": 100,
        "weir_prefix_cache_hits_total": 60,
        "weir_request_queue_time_seconds_sum": 9.9,
    }.items():
        assert samples(name) == value
    buckets = {le: samples("weir_request_queue_time_seconds_bucket", le=le) for le in ("0.5", "1.0", "+Inf")}
    assert buckets == {"0.5": 1, "1.0": 2, "+Inf": 3}
    assert samples("weir_engine_step_seconds_count", phase="schedule") == 0
    assert samples.families["weir_engine_step_seconds"].type == "histogram"


async def test_streams_are_counted_by_the_tokens_that_were_out_unjudged(serve: Serve) -> None:
    hook = Script(lambda chunk: emit(chunk.pending, unjudged=0 if chunk.is_final else len(chunk.text)))
    hook.judges = True  # type: ignore[attr-defined]
    client = await serve(ScriptedEngine(counted("a", "b", "c", "d")), hook, Script(lambda c: emit(c.pending)))
    await client.post(CHATS, CHAT)
    samples = await scrape(client)
    name = "weir_hook_unjudged_tokens"
    assert (samples.count(name, hook="hook0"), samples(f"{name}_sum", hook="hook0")) == (1, 4)
    assert samples(f"{name}_bucket", hook="hook0", le="2.0") == 0
    assert samples(f"{name}_bucket", hook="hook0", le="4.0") == 1
    assert samples.count(name, hook="hook1") == 0


async def test_metrics_contain_no_text(serve: Serve) -> None:
    """Neither text of the caller nor text of the model, released or withheld (contract 6.2)."""
    client = await serve(
        ScriptedEngine(counted("hunter2", "b")),
        Script(lambda c: suppress() if "hunter2" in c.text_diff else terminate("hunter2")),
        names=[],
    )
    await client.post(CHATS, {**CHAT, "model": "hunter2", "user": "hunter2", "metadata": {"a": "hunter2"}})
    await client.post(CHATS, {**CHAT, "hooks": ["hunter2"]})
    _, body = await client.get("/metrics")
    assert b"weir_request_success_total" in body
    assert b"hunter2" not in body


async def test_metrics_name_models_policies_and_tenants(serve: Serve) -> None:
    """Where there are several; a tenant is always named."""
    names = ("one", "two")
    directory = Directory(
        [ModelSettings(policy=name).named((name,)) for name in names],
        [PolicyEntry(name, PolicySettings()) for name in names],
    )
    client = await serve(ScriptedEngine(counted("a", "b")), names=["m"])
    client.server.service.deployments.current = Deployment(
        directory,
        {name: ScriptedEngine(counted("a", "b")) for name in names},
        {name: pipeline_of(Script(lambda chunk: emit(chunk.pending))) for name in names},
    )
    for model in ("one", "two", "two"):
        await client.post(CHATS, {**CHAT, "model": model})
    samples = await scrape(client)
    for name, number in (("one", 1), ("two", 2)):
        of = {"endpoint": "chat", "model_name": name}
        assert samples("weir_requests_total", outcome="finished", **of) == number
        assert samples.count("weir_time_to_first_token_seconds", **of) == number
        assert samples("weir_hook_verdicts_total", policy=name, hook="hook0", action="emit") == 3 * number
        assert ("weir_num_requests_running", frozenset({("model_name", name)})) in samples.values
    assert samples("weir_tenant_requests_total", tenant="default", outcome="finished") == 3
    assert samples("weir_tenant_tokens_total", tenant="default", kind="prompt") == 21
    assert samples("weir_tenant_tokens_total", tenant="default", kind="completion") == 6
    assert samples("weir_http_responses_total", path=CHATS, status="200") == 3
