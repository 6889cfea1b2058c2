"""Promises of every engine (`engine.protocol.Engine`). A new backend gets a line in `BACKENDS`."""

import asyncio
import math
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from engine.protocol import Delta, Engine, EngineError, GenerationRequest, RequestError, SamplingParams
from engine.streams.recorder import RecordingEngine
from engine.streams.recording import Recording, TimedDelta, record
from engine.upstream.echo import EchoEngine
from engine.upstream.messages.engine import MessagesEngine
from engine.upstream.openai.engine import OpenAIEngine
from engine.upstream.pool.engine import PoolEngine
from engine.upstream.pool.replica import Replica
from engine.upstream.replay import ReplayEngine
from tests.engine.upstream.conftest import messages_api
from tests.helpers import until

PROMPT = "one two three four five six"


def request(endpoint: str = "completions", **fields: Any) -> GenerationRequest:
    asked = (
        {"messages": ({"role": "user", "content": PROMPT},)} if endpoint == "chat" else {"prompts": (PROMPT,)}
    )
    return GenerationRequest(**{"request_id": "r", "model": "m", "endpoint": endpoint, **asked, **fields})


def sampling(**fields: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 0.0, "ignore_eos": True, **fields})


REQUESTS = {
    "chat": request("chat", sampling=sampling(max_tokens=5)),
    "chat with logprobs": request("chat", sampling=sampling(max_tokens=5, logprobs=2)),
    "completion": request(sampling=sampling(max_tokens=5)),
    "one token": request(sampling=sampling(max_tokens=1)),
    "no token": request(sampling=sampling(max_tokens=0), echo=True),
    "logprobs": request(sampling=sampling(max_tokens=5, logprobs=1)),
    "chosen logprobs": request(sampling=sampling(max_tokens=5, logprobs=0)),
    "echo": request(sampling=sampling(max_tokens=5), echo=True),
    "echo with logprobs": request(sampling=sampling(max_tokens=5, logprobs=1), echo=True),
    "echo of ids": request(prompts=((5, 6, 7),), sampling=sampling(max_tokens=5), echo=True),
    "token ids": request(sampling=sampling(max_tokens=5), return_token_ids=True),
    "batch": request(
        prompts=(PROMPT, "seven eight", (5, 6, 7)), sampling=sampling(max_tokens=5, n=2, seed=1)
    ),
}
LONG = request(sampling=sampling(max_tokens=400))


@dataclass
class Backend:
    """A started engine, a request that it refuses, and those that it answers, with a long one."""

    engine: Engine
    bad: GenerationRequest
    requests: dict[str, GenerationRequest] = field(default_factory=lambda: REQUESTS)
    long: GenerationRequest = LONG


async def echo() -> Backend:
    return Backend(EchoEngine(delay=0.001), request("chat", messages=({"role": "system", "content": "x"},)))


async def replay() -> Backend:
    recorded = [await record(EchoEngine(), asked) for asked in (*REQUESTS.values(), LONG)]
    recordings = [
        replace(r, deltas=tuple(TimedDelta(i / 1000, timed.delta) for i, timed in enumerate(r.deltas)))
        for r in recorded
    ]
    return Backend(ReplayEngine(recordings, speed=1), request(prompts=("not recorded",)))


def messages(engine: Engine) -> Backend:
    """The Messages API has chats alone, and neither logprobs nor a way to go on after the end."""

    def chat(max_tokens: int) -> GenerationRequest:
        return request("chat", sampling=SamplingParams(temperature=0.0, max_tokens=max_tokens))

    bad = replace(chat(5), messages=({"role": "user", "content": "no such text"},))
    return Backend(engine, bad, {"chat": chat(5), "one token": chat(1)}, chat(400))


BACKENDS = ["echo", "replay", "openai", "messages", "pool", "local", "remote"]
BACKENDS += [*(f"recorded {name}" for name in BACKENDS), "local ahead"]


@pytest.fixture(params=BACKENDS)
async def backend(
    request: pytest.FixtureRequest, upstream: Any, start_engine: Any, start_remote: Any, tmp_path: Path
) -> AsyncIterator[Backend]:
    bad = globals()["request"](prompts=((10**9,),))
    name = request.param.removeprefix("recorded ")
    match name:
        case "echo":
            made = await echo()
        case "replay":
            made = await replay()
        case "openai":
            upstream.script = _scripted(upstream.script)
            made = Backend(OpenAIEngine(upstream.url), bad)
        case "messages":
            upstream.script = _scripted(messages_api)
            made = messages(MessagesEngine(upstream.url))
        case "pool":
            upstream.script = _scripted(upstream.script)
            made = Backend(PoolEngine([Replica(name, OpenAIEngine(upstream.url)) for name in "ab"]), bad)
        case "local":
            made = Backend(await start_engine(), bad)
        case "remote":
            made = Backend(await start_remote(), bad)
        case "local ahead":
            made = Backend(await start_engine(async_scheduling=True), bad)
    if name != request.param:
        made.engine = RecordingEngine(made.engine, tmp_path, max_bytes=10**9)
    if not name.startswith(("local", "remote")):  # which have started
        await made.engine.start()
    yield made
    await made.engine.aclose()
    if name != request.param:
        for path in tmp_path.iterdir():  # noqa: ASYNC240
            Recording.load(path)


def _scripted(vllm: Callable[..., Any]) -> Callable[[dict[str, Any]], Any]:
    def script(body: dict[str, Any]) -> Any:
        if body.get("prompt") == [10**9] or "no such text" in str(body):
            return web.json_response({"error": {"message": "no such token", "param": "prompt"}}, status=400)
        return vllm(body, delay=0.001)

    return script


@pytest.fixture
def engine(backend: Backend) -> Engine:
    return backend.engine


def asked_of(backend: Backend, name: str) -> GenerationRequest:
    """The request of this name. Skips the test for an engine that has nothing like it."""
    if name not in backend.requests:
        pytest.skip("this engine has nothing like it")
    return backend.requests[name]


async def collect(engine: Engine, asked: GenerationRequest) -> list[Delta]:
    async with aclosing(engine.generate(asked)) as stream:
        return [delta async for delta in stream]


@pytest.mark.parametrize("name", REQUESTS)
async def test_names_the_field_that_it_has_nothing_like(backend: Backend, name: str) -> None:
    if name not in backend.requests:
        with pytest.raises(RequestError) as error:
            await collect(backend.engine, REQUESTS[name])
        assert (error.value.status, bool(error.value.param)) == (400, True)


async def test_nothing_runs_before_iteration(backend: Backend) -> None:
    engine = backend.engine
    stream = engine.generate(backend.long)
    await asyncio.sleep(0.02)
    assert engine.stats().num_running == engine.stats().num_waiting == 0
    await stream.aclose()
    assert engine.stats().aborted_total == 0


@pytest.mark.parametrize("name", REQUESTS)
async def test_answers_whole(backend: Backend, name: str) -> None:
    engine, asked = backend.engine, asked_of(backend, name)
    deltas = await collect(engine, asked)
    outputs = defaultdict(list)
    for delta in deltas:
        outputs[delta.index].append(delta)
        assert (delta.tool_call is not None) == (delta.channel == "tool_call")
        if delta.tokens:
            assert "".join(token.text for token in delta.tokens) == delta.text
        for token in delta.tokens:
            numbers = [token.logprob, *(top.logprob for top in token.top)]
            assert all(math.isfinite(x) for x in numbers if x is not None)
            assert len(token.top) <= (asked.sampling.logprobs or 0)
    assert sorted(outputs) == list(range(asked.num_outputs))
    for output in outputs.values():
        assert [d.finish_reason is not None for d in output] == [False] * (len(output) - 1) + [True]
        assert all(d.prompt_token_ids is None for d in output[1:])
        channels = [d.channel for d in output if d.text]
        assert sorted(channels, reverse=True) == channels
        assert ("echo" in channels) == asked.echo
        assert "content" not in channels or asked.sampling.max_tokens
    usage = deltas[-1].usage
    assert usage is not None
    assert usage.completion_tokens == asked.num_outputs * (asked.sampling.max_tokens or 0)
    assert usage.prompt_tokens > 0
    stats = engine.stats()
    assert stats.generation_tokens_total == usage.completion_tokens
    assert stats.aborted_total == 0


@pytest.mark.parametrize("name", ["chat with logprobs", "logprobs", "chosen logprobs", "echo with logprobs"])
async def test_gives_a_logprob_with_each_token(backend: Backend, name: str) -> None:
    deltas = await collect(backend.engine, asked_of(backend, name))
    for channel in ("echo", "content"):
        tokens = [token for delta in deltas if delta.channel == channel for token in delta.tokens]
        first = 1 if channel == "echo" else 0
        assert len(tokens) == 5 if channel == "content" else True
        assert all(token.logprob is None for token in tokens[:first])
        assert all(token.logprob is not None for token in tokens[first:])


async def test_gives_no_logprob_unasked(backend: Backend) -> None:
    for name in backend.requests.keys() & {"chat", "completion", "echo of ids", "token ids"}:
        deltas = await collect(backend.engine, backend.requests[name])
        assert all(token.logprob is None and not token.top for delta in deltas for token in delta.tokens)


async def test_tells_token_ids(backend: Backend) -> None:
    deltas = await collect(backend.engine, asked_of(backend, "token ids"))
    assert sum(token.id is not None for delta in deltas for token in delta.tokens) == 5
    assert deltas[0].prompt_token_ids


@pytest.mark.parametrize("prompt", [PROMPT, (5, 6, 7)])
async def test_echoes_the_prompt_on_its_own_channel(backend: Backend, prompt: Any) -> None:
    name = "echo" if prompt == PROMPT else "echo of ids"
    deltas = await collect(backend.engine, asked_of(backend, name))
    echo = [delta for delta in deltas if delta.channel == "echo"]
    if prompt == PROMPT:
        assert "".join(delta.text for delta in echo) == PROMPT
    else:
        assert [token.id for delta in echo for token in delta.tokens] == [5, 6, 7]


async def test_closing_early_ends_the_work(backend: Backend) -> None:
    engine = backend.engine
    async with aclosing(engine.generate(backend.long)) as stream:
        await anext(stream)
        await anext(stream)
        await until(lambda: engine.stats().num_running == 1)
    await until(lambda: engine.stats().num_running == 0)
    await until(lambda: engine.stats().aborted_total == 1)
    assert engine.stats().generation_tokens_total < 400


async def test_tokens_count_while_their_request_runs(backend: Backend) -> None:
    engine = backend.engine
    async with aclosing(engine.generate(backend.long)) as stream:
        await anext(stream)
        await anext(stream)
        await until(lambda: engine.stats().generation_tokens_total > 0)
        assert engine.stats().num_running == 1


async def test_cancelling_the_reader_ends_the_work(backend: Backend) -> None:
    engine = backend.engine
    async with asyncio.TaskGroup() as group:
        reader = group.create_task(collect(engine, backend.long))
        await until(lambda: engine.stats().num_running == 1)
        reader.cancel()
    await until(lambda: engine.stats().num_running == 0)
    await until(lambda: engine.stats().aborted_total == 1)


async def test_answers_many_at_once_as_it_would_alone(backend: Backend) -> None:
    engine, requests = backend.engine, backend.requests
    names = [name for name in requests if name != "batch"]
    alone = [await collect(engine, requests[name]) for name in names]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(collect(engine, requests[name])) for name in names]
    for before, task in zip(alone, tasks, strict=True):
        assert _texts(task.result()) == _texts(before)


def _texts(deltas: list[Delta]) -> dict[tuple[int, str], str]:
    texts: dict[tuple[int, str], str] = defaultdict(str)
    for delta in deltas:
        texts[delta.index, delta.channel] += delta.text
    return texts


async def test_streaming_changes_nothing(backend: Backend) -> None:
    engine, asked = backend.engine, backend.requests["chat"]
    assert _texts(await collect(engine, replace(asked, stream=True))) == _texts(await collect(engine, asked))


async def test_refuses_before_the_first_delta(backend: Backend) -> None:
    with pytest.raises(RequestError) as error:
        await collect(backend.engine, backend.bad)
    assert str(error.value)
    assert error.value.status == 400
    assert backend.engine.stats().num_running == backend.engine.stats().aborted_total == 0
    assert await collect(backend.engine, backend.requests["chat"])


async def test_close_aborts_what_runs(backend: Backend) -> None:
    engine = backend.engine

    async def read() -> EngineError | None:
        try:
            await collect(engine, backend.long)
        except EngineError as error:
            return error
        return None

    async with asyncio.TaskGroup() as group:
        reader = group.create_task(read())
        await until(lambda: engine.stats().num_running == 1)
        await engine.aclose()
    error = reader.result()
    assert error is not None
    assert error.status == 503
    with pytest.raises(EngineError) as refused:
        await collect(engine, backend.long)
    assert refused.value.status == 503
    with pytest.raises(EngineError):
        engine.check_health()


async def test_is_healthy_once_started(engine: Engine) -> None:
    engine.check_health()
    assert engine.info.max_model_len is None or engine.info.max_model_len > 0
