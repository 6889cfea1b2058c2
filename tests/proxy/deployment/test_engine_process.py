"""An engine in another process of the service: what all engines promise is in
`tests/engine/upstream/test_contract.py`, and rewinds are in `tests/contract/test_rewind.py`."""

import asyncio
import logging
import pickle
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from engine.protocol import (
    DeadEngineError,
    EngineError,
    GenerationRequest,
    ModelInfo,
    QueueFullError,
    RequestError,
    SamplingParams,
    errors,
)
from engine.protocol.deltas import Delta, Token, Usage
from engine.protocol.demo import MODEL_DIR
from engine.protocol.engine import check_processors
from engine.protocol.fields.support import FieldSupport
from engine.protocol.options import EngineConfig
from engine.protocol.processor_specs import NamedProcessorSpec
from engine.protocol.tracing import NoSpan, current
from engine.upstream.echo import EchoEngine
from hooks.workers.messages import Connection
from proxy.deployment.engine_process.host import EngineHost
from proxy.deployment.engine_process.messages import Opened
from proxy.deployment.engine_process.remote import RemoteEngine
from proxy.deployment.engines import make_engine
from proxy.settings.model import ModelSettings
from tests.engine_process import hosting, remote_engine
from tests.helpers import ScriptedEngine, make_request, until
from tests.processes import WAIT_LIMIT


def front(path: Path, name: str = "m") -> RemoteEngine:
    def no_tokenizer() -> Any:
        raise AssertionError("the engine has none")

    return RemoteEngine(path, ModelSettings(model=name), no_tokenizer, can_withhold=True)


@asynccontextmanager
async def fronts(path: Path, *names: str) -> AsyncIterator[list[RemoteEngine]]:
    made = [front(path, name) for name in names]
    for one in made:
        await one.start()
    yield made
    for one in made:
        await one.aclose()


def says(*texts: str) -> ScriptedEngine:
    deltas = [Delta(text=text, tokens=(Token(1, text),), usage=Usage(1, 1)) for text in texts]
    return ScriptedEngine(lambda _: [*deltas, Delta(finish_reason="stop")])


async def texts_of(engine: RemoteEngine, request: GenerationRequest | None = None) -> str:
    return "".join([delta.text async for delta in engine.generate(request or make_request())])


async def test_processes_share_the_engines_of_equal_settings() -> None:
    made: list[ScriptedEngine] = []

    def make() -> ScriptedEngine:
        made.append(says(f"engine {len(made)}"))
        return made[-1]

    async with hosting(make) as path, fronts(path, "a", "a", "b") as engines:
        assert [await texts_of(engine) for engine in engines] == ["engine 0", "engine 0", "engine 1"]
        await engines[0].aclose()
        await texts_of(engines[1])
        assert not made[0].stopped.is_set()
        await engines[1].aclose()
        await until(lambda: made[0].stopped.is_set())
        assert not made[1].stopped.is_set()


async def test_a_model_s_new_name_loads_it_no_second_time(tmp_path: Path) -> None:
    made: list[ScriptedEngine] = []

    def make() -> ScriptedEngine:
        made.append(says("a"))
        return made[-1]

    model = ModelSettings(engine="local")
    named = [model.named(("a",)), model.named(("b", "c"), aliases=["c"], policy="p", record=tmp_path)]
    async with hosting(make) as path:
        engines = [make_engine(settings, engine_process=path) for settings in named]
        for engine in engines:
            await engine.start()
        assert len(made) == 1
        for engine in engines:
            await engine.aclose()


async def test_the_process_ends_with_an_engine_that_has_failed_for_good() -> None:
    class Failing(ScriptedEngine):
        def check_health(self) -> None:
            if not self.healthy:
                raise DeadEngineError("gone")

    engine = Failing(lambda _: [])
    host = EngineHost(lambda _: engine)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "socket"
        async with await asyncio.start_unix_server(host.connect, path), fronts(path, "a"):
            watching = asyncio.get_running_loop().create_task(host.watch())
            await asyncio.sleep(0)
            assert not watching.done()
            engine.healthy = False
            await asyncio.wait_for(watching, WAIT_LIMIT)
        await host.aclose()


async def test_an_engine_that_closes_already_is_closed_to_the_end() -> None:
    closing, may_end = asyncio.Event(), asyncio.Event()
    closed: list[bool] = []

    class Slow(ScriptedEngine):
        async def aclose(self) -> None:
            closing.set()
            await may_end.wait()
            closed.append(True)

    host = EngineHost(lambda _: Slow(lambda _: []))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "socket"
        async with await asyncio.start_unix_server(host.connect, path):
            async with fronts(path, "a"):
                pass
            await closing.wait()
            ending = asyncio.get_running_loop().create_task(host.aclose())
            await asyncio.sleep(0)
            may_end.set()
            await ending
    assert closed == [True]


async def test_the_numbers_of_all_processes_together_are_the_engines() -> None:
    engine = EchoEngine()

    def told() -> int:
        return sum(one.stats().generation_tokens_total for one in (first, second))

    async with hosting(lambda: engine) as path, fronts(path, "a", "a") as (first, second):
        for one in (first, second, second):
            await texts_of(one)
        await until(lambda: told() == engine.stats().generation_tokens_total > 0)
        await first.aclose()
        await texts_of(second)
        await until(lambda: told() == engine.stats().generation_tokens_total)


async def test_a_process_that_goes_ends_its_requests_alone() -> None:
    goes_on = asyncio.Event()
    script = [Delta(text="a"), goes_on, Delta(text="b"), Delta(finish_reason="stop")]
    engine = ScriptedEngine(lambda _: script)
    async with hosting(lambda: engine) as path, fronts(path, "a", "a") as (first, second):
        gone, kept = first.generate(make_request()), second.generate(make_request())
        async with aclosing(gone), aclosing(kept):
            assert (await anext(gone)).text == (await anext(kept)).text == "a"
            await first.aclose()
            with pytest.raises(EngineError):
                await anext(gone)
            await until(lambda: engine.running == 1)
            goes_on.set()
            assert "".join([delta.text async for delta in kept]) == "b"


async def test_an_engine_that_cannot_start_says_why_to_each_process() -> None:
    class Broken(ScriptedEngine):
        async def start(self) -> None:
            raise ValueError("no such model")

    async with hosting(lambda: Broken(lambda _: [])) as path:
        for _ in range(2):
            with pytest.raises(ValueError, match="no such model"):
                await front(path).start()


async def test_a_process_of_engines_that_ends_is_noticed() -> None:
    engine = ScriptedEngine(lambda _: [Delta(text="a"), asyncio.Event()])
    async with hosting(lambda: engine) as path:
        one = front(path)
        await one.start()
        one.check_health()
        stream = one.generate(make_request())
        await anext(stream)
    with pytest.raises(DeadEngineError):
        await anext(stream)
    with pytest.raises(DeadEngineError):
        one.check_health()
    await one.aclose()


async def test_a_frame_that_is_not_understood_ends_all_requests(caplog: pytest.LogCaptureFixture) -> None:
    async def speaks_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        await connection.receive()
        connection.send(Opened(ModelInfo(), FieldSupport(), has_tokenizer=False))
        connection.flush()
        await connection.receive()
        writer.write(b"\0\0\0\3abc")
        await writer.drain()
        writer.close()

    with TemporaryDirectory() as folder:
        path = Path(folder) / "socket"
        async with await asyncio.start_unix_server(speaks_nonsense, path):
            one = front(path)
            await one.start()
            with pytest.raises(DeadEngineError):
                await texts_of(one)
            with pytest.raises(DeadEngineError):
                one.check_health()
            await one.aclose()
    assert "is not understood (UnpicklingError)" in caplog.text


@pytest.mark.parametrize(
    "error",
    [
        RequestError("too long", param="prompt", code="context_length_exceeded", status=413),
        QueueFullError("full", retry_after=7),
        errors.CallerLimitError("yours are too many"),
        errors.LogitsProcessorError("mine", left_no_token=True),
        errors.DeviceLostError(),
    ],
)
async def test_an_error_arrives_as_it_was_raised(error: Exception) -> None:
    async with hosting(lambda: ScriptedEngine(lambda _: [error])) as path, fronts(path, "a") as (one,):
        with pytest.raises(type(error)) as raised:
            await texts_of(one)
    assert (str(raised.value), vars(raised.value)) == (str(error), vars(error))


async def test_another_error_is_told_in_general_words(caplog: pytest.LogCaptureFixture) -> None:
    engine = ScriptedEngine(lambda _: [KeyError("a secret")])
    async with hosting(lambda: engine) as path, fronts(path, "a") as (one,):
        with pytest.raises(EngineError) as raised:
            await texts_of(one)
    assert "secret" not in str(raised.value)
    assert "a request failed (KeyError)" in caplog.text
    told = [one for one in caplog.records if one.levelno > logging.DEBUG]
    assert not any("secret" in caplog.handler.format(one) for one in told)


class Noted(NoSpan):
    """A span that notes its children."""

    def __init__(self) -> None:
        super().__init__()
        self.children: list[str] = []

    def child(self, name: str, **times: Any) -> NoSpan:
        self.children.append(name)
        return NoSpan()


async def test_a_trace_has_the_engine_s_phases() -> None:
    span, sampling = Noted(), SamplingParams(max_tokens=3)
    asked = replace(make_request(), sampling=sampling)
    async with remote_engine(EngineConfig(model=str(MODEL_DIR), num_threads=1)) as engine:
        with current(span):
            async for _ in engine.generate(asked):
                pass
        await until(lambda: span.children == ["queue", "prefill", "decode"])


async def test_logits_processors_are_checked_where_they_run() -> None:
    config = EngineConfig(model=str(MODEL_DIR), num_threads=1)
    async with remote_engine(config) as engine:
        with pytest.raises(ValueError, match="mine"):
            await check_processors(engine, [NamedProcessorSpec("mine")])


def test_deltas_keep_all_their_fields_on_the_way() -> None:
    tokens, usage = (Token(1, "é", b"\xc3", -0.5),), Usage(1, 2, 3, 4, 5, 6, True)
    delta = Delta(3, "é", tokens, "reasoning", None, "stop", "end", (1, 2), None, usage, True, True)
    assert pickle.loads(pickle.dumps(delta)) == delta
    assert vars_of(pickle.loads(pickle.dumps(usage))) == vars_of(usage)


def vars_of(usage: Usage) -> Mapping[str, Any]:
    return {name: getattr(usage, name) for name in Usage.__slots__}
