"""Each field, sent to each engine, meets with the treatment that docs/fields.md says."""

import re
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from engine.local.engine import LocalEngine
from engine.protocol import GenerationRequest
from engine.protocol.demo import MODEL_DIR
from engine.protocol.fields.names import BINDING, HINTS, engine_name
from engine.protocol.fields.support import Treatment
from engine.protocol.flow import FeedingEngine
from engine.protocol.options import EngineConfig, LogitsProcessorConfig
from engine.protocol.parts import ENGINES
from engine.streams.recording import Recording, TimedDelta
from engine.upstream.dialects import DIALECTS
from engine.upstream.messages.engine import MessagesEngine
from engine.upstream.replay import ReplayEngine
from engine.vllm.engine import VLLMEngine
from engine.vllm.options import VLLMOptions
from hooks import emit
from hooks.loading.loader import LoadedHook
from hooks.pipeline.pipeline import Pipeline
from proxy.wire.openai.endpoint_fields import HEADER, names_of
from tests.engine.upstream.conftest import FakeUpstream, fake_upstream, vllm
from tests.engine.upstream.messages import asked as events
from tests.helpers import make_deltas
from tests.proxy.conftest import Client, Serve
from tests.proxy.fields.samples import PREVIOUS, SAMPLES, Sample
from tools.docs.fields import ENDPOINTS, FieldRow, rows

PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
TURNS = [{"role": "user", "content": "<think>Hm</think>Hi there"}]
BASES: dict[str, dict[str, Any]] = {
    "chat": {"model": "m", "messages": TURNS, "max_tokens": 3, "temperature": 0},
    "completions": {"model": "m", "prompt": "Hi there", "max_tokens": 1, "temperature": 0},
    "responses": {"model": "m", "input": "Hi there", "max_output_tokens": 1, "temperature": 0},
    "messages": {"model": "m", "messages": TURNS, "max_tokens": 9, "temperature": 0},
}
TEMPLATE = "{%- for tool in tools or [] -%}{{ tool | tojson }}{%- endfor -%}"
"""What the demo model's chat template lacks."""
ELSEWHERE = {
    ("thinking.display", "local"): "the model does not think",
    ("thinking.budget_tokens", "local"): "the model has no room for the smallest budget",
    ("thinking.display", "vllm"): "as local",
    ("thinking.budget_tokens", "vllm"): "as local",
    ("thinking.display", "replay"): "the recording has no thoughts",
    ("add_generation_prompt", "messages"): "false goes with continue_final_message alone",
    ("include", "messages"): "this upstream gives no logprobs, and the error says so",
    ("return_tokens_as_token_ids", "messages"): "this upstream gives no logprobs, and the error says so",
    ("suffix", "local"): "the model cannot fill in the middle, and says so",
    ("suffix", "vllm"): "as local",
}
"""Fields without a visible effect with a test's engine, and why."""


class Outcome(NamedTuple):
    status: int
    text: str
    ignored: list[str]
    asked: GenerationRequest | None
    """The engine's request."""
    body: dict[str, Any]
    """The upstream's body."""
    read: set[str]
    """The fields of `GenerationRequest.extra` that the engine read by name."""

    def is_read(self, name: str) -> bool:
        """Whether the engine read the field, if the field came among those without a place of their own."""
        return self.asked is None or name not in self.asked.extra or name in self.read


class ReadFields(dict[str, Any]):
    """A request's further fields. It keeps the names of those that somebody reads."""

    def __init__(self, fields: Mapping[str, Any], read: set[str]) -> None:
        super().__init__(fields)
        self._read = read

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._read.add(name)
        return super().get(name, default)


def config(folder: Path, **options: Any) -> EngineConfig:
    """The demo model, with tools and with a logits processor."""
    shutil.copytree(MODEL_DIR, folder, dirs_exist_ok=True)
    template = folder / "chat_template.jinja"
    template.write_text(TEMPLATE + template.read_text())
    fails = LogitsProcessorConfig("fails", "tests.engine.sampling.logits_processors.processors.FailsAlone")
    markers = {"start": "<|im_start|>", "end": "<|im_end|>"}
    budget = LogitsProcessorConfig("thinking_budget", "thinking_budget", args=markers)
    processors = (fails, budget)
    return EngineConfig(
        model=str(folder), scheduling_policy="priority", logits_processors=processors, **options
    )


@asynccontextmanager
async def engine_named(name: str, folder: Path, upstream: FakeUpstream) -> AsyncIterator[Any]:
    match name:
        case "local":
            yield LocalEngine(config(folder, num_threads=1))
        case "vllm":
            arguments = {"dtype": "float32", "enforce_eager": True, "max_num_seqs": 8}
            yield VLLMEngine(config(folder), VLLMOptions(vllm=arguments))
        case "replay":
            yield ReplayEngine([])
        case dialect if dialect in DIALECTS:
            yield ENGINES.load(name)(upstream.url)
        case _:
            yield ENGINES.load(name)()


class Sender:
    """Sends bodies to an endpoint of one server, and sees what reaches its engine. It is made before the
    server, which looks at the engine once."""

    endpoint: str
    client: Client

    def __init__(self, engine: Any, upstream: FakeUpstream) -> None:
        self.upstream = upstream
        self.asked: list[GenerationRequest] = []
        self.read = set[str]()
        self.translated = engine.fields.honoured_in_chats if isinstance(engine, MessagesEngine) else ()
        """Fields that reach the upstream under names of its own."""
        entry = "feed" if isinstance(engine, FeedingEngine) else "generate"
        enter = getattr(engine, entry)

        def seen(request: GenerationRequest, *flow: Any) -> Any:
            self.asked.append(replace(request, request_id="", given=frozenset()))
            if isinstance(engine, ReplayEngine):
                deltas = tuple(TimedDelta(0, delta) for delta in make_deltas(["Hello"]))
                engine._recordings.clear()
                engine._add([Recording(request, deltas)])
            return enter(replace(request, extra=ReadFields(request.extra, self.read)), *flow)

        setattr(engine, entry, seen)

    async def send(self, fields: dict[str, Any]) -> Outcome:
        self.asked.clear()
        self.read.clear()
        self.upstream.bodies.clear()
        body = BASES[self.endpoint] | fields
        url = self.client.url + PATHS[self.endpoint]
        async with self.client.http.post(url, json=body) as response:
            return Outcome(
                response.status,
                await response.text(),
                response.headers.get(HEADER, "").split(", "),
                self.asked[-1] if self.asked else None,
                self.upstream.bodies[-1] if self.upstream.bodies else {},
                set(self.read),
            )

    async def failure(self, row: FieldRow, treatment: Treatment, sample: Sample) -> str | None:
        """How the field is treated otherwise than the page says. None: as it says."""
        if sample.value == PREVIOUS:
            earlier = orjson.loads((await self.send({})).text)
            sample = replace(sample, value=earlier["id"])
        base, fields = sample.beside, _with(sample.beside, row.name, sample.value)
        seen = await self.send(fields)
        match treatment:
            case Treatment.REFUSED:
                names = re.escape(row.name), engine_name(self.endpoint, row.name)
                is_named = re.search(rf"\b({'|'.join(names)})\b", seen.text) is not None
                as_expected = seen.status == 400 and is_named
            case Treatment.IGNORED:
                as_expected = seen.status == 200 and row.name in seen.ignored
            case Treatment.RELAYED:
                name = engine_name(self.endpoint, row.name)
                expected = sample.relayed or {name: sample.value}
                as_expected = expected.items() <= seen.body.items() and row.name not in seen.ignored
            case Treatment.HONOURED:
                before = await self.send(base)
                changes = seen.asked != before.asked or _plain(seen.text) != _plain(before.text)
                if engine_name(self.endpoint, row.name) in self.translated:
                    changes = seen.body != before.body
                is_services = row.name in ENDPOINTS[self.endpoint].fields.by_service
                is_read = is_services or seen.is_read(engine_name(self.endpoint, row.name))
                as_expected = seen.status == 200 and changes and is_read and row.name not in seen.ignored
        return None if as_expected else f"{treatment}: {seen}"


def _with(fields: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """The fields, with one more. Its name may be dotted."""
    first, dot, rest = name.partition(".")
    if dot:
        value = fields.get(first, {}) | {rest: value}
    return {first: value} | {own: other for own, other in fields.items() if own != first}


def _plain(text: str) -> str:
    """An answer without what differs from one to the next."""
    return re.sub(r'[0-9a-f]{32}|"(created|created_at|completed_at)": ?\d+', "", text)


def script(body: dict[str, Any]) -> Any:
    """An upstream whose model thinks."""
    if "messages" in body:
        yield {"choices": [{"index": 0, "delta": {"reasoning_content": "Hm"}, "finish_reason": None}]}
    yield from vllm(body)


def message(body: dict[str, Any]) -> Any:
    """The same in the Messages API."""
    yield from events.answer(events.block(0, "thinking", "Hm"), events.block(1, "text", "Hello"))


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with fake_upstream() as fake:
        yield fake


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_every_field_has_a_sample(endpoint: str) -> None:
    missing = {row.name for row in rows(endpoint)} - SAMPLES[endpoint].keys()
    assert not missing, "give them samples in tests/proxy/fields/samples.py"


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_every_field_is_decided(endpoint: str) -> None:
    fields = ENDPOINTS[endpoint].fields
    known = names_of(fields) | BINDING | HINTS | fields.refused.keys()
    undecided = {row.name for row in rows(endpoint)} - known
    assert not undecided, "give them a row in engine/protocol/fields/table.py"


VLLM = pytest.param("vllm", [*ENDPOINTS], marks=[pytest.mark.vllm, pytest.mark.filterwarnings("default")])
"""vLLM starts once for all endpoints: it takes long."""


@pytest.mark.parametrize(
    ("name", "endpoints"),
    [VLLM, *((name, [own]) for own, one in ENDPOINTS.items() for name in one.engines if name != "vllm")],
)
async def test_every_field_is_treated_as_the_page_says(
    serve: Serve, name: str, endpoints: list[str], upstream: FakeUpstream, tmp_path: Path
) -> None:
    upstream.script = message if name == "messages" else script
    async with engine_named(name, tmp_path, upstream) as engine:
        sender = Sender(engine, upstream)
        sender.client = await serve(
            engine,
            pipeline=Pipeline([], allowed=[LoadedHook.of("observer", lambda chunk: emit(chunk.pending))]),
            names=["m", "other"],
            reasoning_parser="deepseek_r1" if name not in ("openai", "messages") else None,
            tool_call_parser="hermes",
        )
        failures = {}
        for sender.endpoint in endpoints:
            for row in rows(sender.endpoint):
                if (row.name, name) not in ELSEWHERE:
                    sample = SAMPLES[sender.endpoint][row.name]
                    failure = await sender.failure(row, row.treatments[name], sample)
                    if failure is not None:
                        failures[sender.endpoint, row.name] = failure
    assert not failures, "\n".join(f"{field}: {failure}" for field, failure in failures.items())
