"""The spans of requests, as a collector gets them from a server."""

import asyncio
import sys
from typing import Any

import pytest

from engine.local.engine import LocalEngine
from engine.protocol import Delta, EngineError, Usage
from engine.protocol.options import EngineConfig
from engine.upstream.openai.engine import OpenAIEngine
from engine.upstream.pool.engine import PoolEngine
from engine.upstream.pool.replica import Replica
from hooks import Chunk, GenerationRequest, emit, hold, redact, with_prompt_texts
from hooks.loading.loader import HookSpec
from hooks.pipeline.pipeline import Pipeline
from hooks.testing.play import behind_worker
from hooks.workers.pool import WorkerPool
from proxy.settings.telemetry import TelemetryOptions
from proxy.telemetry import telemetry
from tests.helpers import Script, ScriptedEngine, make_deltas, pipeline_of, until
from tests.hooks.builtin.detectors import DetectorServer, serving
from tests.proxy.conftest import CHAT, Serve, hello
from tools.collector import Collector, Span

CHATS = "/v1/chat/completions"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


async def spans_of(collector: Collector) -> tuple[Span, dict[str, list[Span]]]:
    """The server's span, and its children by name. It ends last."""
    await until(lambda: any(span.kind == 2 for span in collector.spans))
    (root,) = (span for span in collector.spans if span.kind == 2)
    children: dict[str, list[Span]] = {}
    for span in collector.spans:
        if span is not root:
            assert span.trace_id == root.trace_id
            assert span.parent_id == root.span_id
            assert root.start <= span.start <= span.end <= root.end
            children.setdefault(span.name, []).append(span)
    return root, children


def counted(_: Any) -> list[Any]:
    return [*make_deltas(["Hello", " you"], finish=False), Delta(finish_reason="length", usage=Usage(7, 2))]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_is_a_span_by_the_conventions(
    collector: Collector, serve: Serve, stream: bool
) -> None:
    client = await serve(ScriptedEngine(counted), otlp_endpoint=collector.url)
    body = {**CHAT, "stream": stream, "max_tokens": 9, "temperature": 0.5}
    headers = {"X-Request-Id": "r1"}
    async with client.http.post(client.url + CHATS, json=body, headers=headers) as response:
        await response.read()
    root, _ = await spans_of(collector)
    told = root.attributes
    assert root.name == "chat m"
    assert not root.is_error
    assert told.pop("gen_ai.response.id").startswith("chatcmpl-")
    assert 0 < told.pop("gen_ai.response.time_to_first_chunk") < 60
    assert told == {
        "http.request.method": "POST",
        "http.route": CHATS,
        "http.response.status_code": 200,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "weir",
        "gen_ai.request.choice.count": 1,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.stream": stream,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.response.finish_reasons": ["length"],
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.request.model": "m",
        "weir.key": "anonymous",
        "weir.outcome": "finished",
        "weir.policy": "default",
        "weir.policy.revision": client.server.service.applied.revision(
            client.server.service.deployment.policies["default"]
        ),
        "weir.tenant": "default",
        "weir.request.id": "r1",
    }
    assert root.resource["service.name"] == "weir"


async def test_a_request_belongs_to_its_client_s_trace(collector: Collector, serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), otlp_endpoint=collector.url)
    await client.post(CHATS, CHAT, headers={"traceparent": TRACEPARENT})
    root, _ = await spans_of(collector)
    assert (root.trace_id, root.parent_id) == (TRACE, PARENT)


async def test_a_request_that_its_client_does_not_sample_has_no_span(
    collector: Collector, serve: Serve
) -> None:
    client = await serve(ScriptedEngine(hello), otlp_endpoint=collector.url)
    await client.post(CHATS, CHAT, headers={"traceparent": TRACEPARENT[:-1] + "0"})
    await client.post("/v1/completions", {"prompt": "Hi"})
    root, _ = await spans_of(collector)
    assert root.name.startswith("text_completion")


@pytest.mark.parametrize("bad", ["", "00-x", "a" * 4000, f"ff-{TRACE}-{PARENT}-01"])
async def test_an_invalid_traceparent_begins_a_new_trace(
    collector: Collector, serve: Serve, bad: str
) -> None:
    client = await serve(ScriptedEngine(hello), otlp_endpoint=collector.url)
    status, _, _ = await client.post(CHATS, CHAT, headers={"traceparent": bad})
    assert status == 200
    root, _ = await spans_of(collector)
    assert root.parent_id == ""


async def test_the_sampler_is_the_one_that_the_environment_names(
    collector: Collector, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    client = await serve(ScriptedEngine(hello), otlp_endpoint=collector.url)
    await client.post(CHATS, CHAT)
    await client.server.service.telemetry.aclose()
    assert collector.spans == []


class Zebras:
    """Redacts zebras, in prompts and answers."""

    def on_request(self, request: GenerationRequest) -> GenerationRequest:
        return with_prompt_texts(request, lambda text: text.text.replace("zebra", "*"))

    def __call__(self, chunk: Chunk) -> Any:
        start = chunk.pending.find("zebra")
        if start >= 0:
            return redact([(start, start + 5, "*", "animal")])
        return emit(chunk.pending) if chunk.is_final else hold()


@pytest.mark.parametrize("in_worker", [False, True])
async def test_decisions_are_events_of_the_guard_without_text(
    collector: Collector, serve: Serve, caplog: pytest.LogCaptureFixture, in_worker: bool
) -> None:
    pipeline: Any = pipeline_of(Zebras())
    engine = ScriptedEngine(lambda _: make_deltas(["a ", "zebra"]))
    if in_worker:
        async with behind_worker(pipeline) as pool:
            await _ask(await serve(engine, pipeline=pool, otlp_endpoint=collector.url))
            _, children = await spans_of(collector)
    else:
        await _ask(await serve(engine, pipeline=pipeline, otlp_endpoint=collector.url))
        _, children = await spans_of(collector)
    (guard,), (admission,) = children["guard"], children["admission"]
    assert {one.attributes["gen_ai.operation.name"] for one in (guard, admission)} == {"run_guardrail"}
    assert admission.attributes["gen_ai.security.target.type"] == "llm_input"
    assert not [one for one in caplog.records if one.name.startswith("opentelemetry.sdk")]
    assert guard.attributes["weir.guard.num_deltas"] >= 2
    assert 0 < guard.attributes["weir.guard.seconds"] <= (guard.end - guard.start) / 1e9
    told = [event.attributes for event in guard.events if event.name == "weir.decision"]
    assert [one["weir.decision.action"] for one in told] == ["redact"]
    assert told[0]["weir.decision.reason"] == "animal"
    assert told[0]["weir.decision.num_withheld"] == 5
    (finding,) = (event.attributes for event in guard.events if event.name == "gen_ai.security.finding")
    assert finding.pop("gen_ai.security.policy.version") == told[0]["weir.decision.revision"]
    assert finding == {
        "gen_ai.security.guardrail.name": "hook0",
        "gen_ai.security.target.type": "llm_output",
        "gen_ai.security.verdict.type": "modify",
        "gen_ai.security.verdict.reason": "animal",
        "gen_ai.security.risk.finding": "animal",
        "gen_ai.security.policy.id": "default",
        "gen_ai.security.policy.name": "default",
    }
    assert b"zebra" not in b"".join(collector.raw)


@pytest.mark.parametrize("is_async", [False, True])
async def test_each_delta_of_a_guard_counts_once(collector: Collector, serve: Serve, is_async: bool) -> None:
    async def passes_later(chunk: Chunk) -> Any:
        return emit(chunk.pending)

    hook = passes_later if is_async else lambda chunk: emit(chunk.pending)
    client = await serve(
        ScriptedEngine(lambda _: make_deltas(["a", "b", "c"])), hook, otlp_endpoint=collector.url
    )
    await client.stream(CHATS, CHAT)
    _, children = await spans_of(collector)
    (guard,) = children["guard"]
    assert guard.attributes["weir.guard.num_deltas"] == 4


async def _ask(client: Any) -> None:
    status, body, _ = await client.post(CHATS, CHAT)
    assert (status, body["choices"][0]["message"]["content"]) == (200, "a *")


async def test_a_failed_hook_is_an_error_without_its_message(collector: Collector, serve: Serve) -> None:
    def fails(chunk: Chunk) -> Any:
        if "zebra" in chunk.text_diff:
            raise ValueError("zebra")
        return emit(chunk.pending)

    client = await serve(
        ScriptedEngine(lambda _: make_deltas(["zebra"])), Script(fails), otlp_endpoint=collector.url
    )
    status, _, _ = await client.post(CHATS, CHAT)
    assert status == 500
    root, _ = await spans_of(collector)
    assert root.is_error
    assert root.attributes["error.type"] == "500"
    assert b"zebra" not in b"".join(collector.raw)


async def test_a_client_that_leaves_is_no_error(collector: Collector, serve: Serve) -> None:
    engine = ScriptedEngine(lambda _: [*make_deltas(["a"], finish=False), asyncio.Event()])
    client = await serve(engine, otlp_endpoint=collector.url)
    async with client.http.post(client.url + CHATS, json={**CHAT, "stream": True}) as response:
        await response.content.readline()
        response.close()
    root, _ = await spans_of(collector)
    assert not root.is_error
    assert root.attributes["weir.outcome"] == "closed"


async def test_each_attempt_at_an_upstream_is_a_span_that_the_upstream_hears_of(
    collector: Collector, serve: Serve
) -> None:
    """The first upstream fails. The second is another Weir, whose span belongs to the first one's trace."""
    upstream = await serve(ScriptedEngine(hello), otlp_endpoint=collector.url)
    dead = ScriptedEngine(lambda _: [EngineError("no", status=502)])
    engine = PoolEngine(
        [
            Replica("dead", dead, weight=1000),
            Replica("alive", OpenAIEngine(upstream.url), address={"server.address": "127.0.0.1"}),
        ]
    )
    client = await serve(engine, otlp_endpoint=collector.url)
    status, _, _ = await client.post(CHATS, CHAT, headers={"traceparent": TRACEPARENT})
    assert status == 200
    await until(lambda: sum(span.name.startswith("chat") for span in collector.spans) == 2)
    await until(lambda: any(span.attributes.get("weir.upstream") == "alive" for span in collector.spans))
    tries = {span.attributes["weir.upstream"]: span for span in collector.spans if span.kind == 3}
    if "dead" in tries:  # which one is first follows from the prompt
        assert tries["dead"].is_error
    alive = tries["alive"]
    assert alive.attributes["server.address"] == "127.0.0.1"
    assert alive.attributes["gen_ai.response.time_to_first_chunk"] > 0
    second = next(span for span in collector.spans if span.kind == 2 and span.parent_id == alive.span_id)
    assert second.trace_id == TRACE


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("sampled", ["01", "00"])
async def test_a_service_that_a_guard_asks_gets_the_request_s_trace(
    collector: Collector, serve: Serve, num_workers: int, sampled: str
) -> None:
    detector = DetectorServer()
    with serving(detector) as url:
        spec = HookSpec("remote", {"url": f"{url}/v1/moderations", "prompt": "refuse"})
        pipeline = WorkerPool(num_workers, [spec]) if num_workers else await Pipeline.load([spec])
        client = await serve(ScriptedEngine(hello), pipeline=pipeline, otlp_endpoint=collector.url)
        assert not any("traceparent" in headers for headers in detector.headers), "of the self-test"
        num_asked = len(detector.headers)
        given = {"traceparent": f"{TRACEPARENT[:-2]}{sampled}"}
        assert (await client.post(CHATS, CHAT, headers=given))[0] == 200
        of_prompt, of_answer = detector.headers[num_asked:]
    for headers in (of_prompt, of_answer):
        version, trace, parent, flags = headers["traceparent"].split("-")
        assert (version, trace, parent != PARENT, flags) == ("00", TRACE, True, sampled)
    if sampled == "01":
        root, children = await spans_of(collector)
        parents = [headers["traceparent"].split("-")[2] for headers in (of_prompt, of_answer)]
        of_admission = root if num_workers else children["admission"][0]
        assert parents == [of_admission.span_id, root.span_id]


async def test_the_phases_of_the_in_process_engine_are_spans(collector: Collector, serve: Serve) -> None:
    engine = LocalEngine(EngineConfig())
    client = await serve(engine, names=["m"], otlp_endpoint=collector.url)
    status, _, _ = await client.post(CHATS, {**CHAT, "max_tokens": 4, "ignore_eos": True})
    assert status == 200
    _, children = await spans_of(collector)
    (queue,), (prefill,), (decode,) = (children[name] for name in ("queue", "prefill", "decode"))
    assert queue.end == prefill.start
    assert prefill.end == decode.start
    assert decode.end > decode.start


async def test_a_collector_that_is_away_costs_no_request_and_no_end(serve: Serve, unused_port: int) -> None:
    client = await serve(
        ScriptedEngine(hello), otlp_endpoint=f"http://127.0.0.1:{unused_port}", shutdown_timeout=5
    )
    for _ in range(3):
        status, _, _ = await client.post(CHATS, CHAT)
        assert status == 200


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "proxy.telemetry.otlp", None)
    monkeypatch.delattr("proxy.telemetry.otlp")
    with pytest.raises(ValueError, match="the extra 'otel' of weir-proxy"):
        telemetry.make_telemetry(TelemetryOptions(otlp_endpoint="http://127.0.0.1:1"), list)


@pytest.mark.parametrize(
    ("option", "environment", "url"),
    [
        (None, {}, None),
        ("http://a:1/", {}, "http://a:1/v1/traces"),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://b"}, "http://b/v1/traces"),
        ("http://a", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://b"}, "http://a/v1/traces"),
        (None, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/own"}, "http://c/own"),
        ("http://a", {"OTEL_TRACES_EXPORTER": "none"}, None),
        ("http://a", {"OTEL_SDK_DISABLED": "true"}, None),
    ],
)
def test_the_standard_variables_are_read(option: Any, environment: dict[str, str], url: Any) -> None:
    assert TelemetryOptions(otlp_endpoint=option).otlp_url("traces", environment) == url
