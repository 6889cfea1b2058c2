"""A thread-safe hook reads a long prompt on another thread, and the event loop goes on."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from engine.protocol import GenerationRequest
from engine.protocol.prompt_size import LONG_PROMPT
from engine.turns.prompt_threads import PromptThreads
from hooks import Chunk, PromptText, Verdict, emit, prompt_texts, refuse
from hooks.builtin.patterns import Patterns
from hooks.builtin.phrases import Phrases
from hooks.builtin.pii import Pii
from hooks.builtin.repetition import Repetition
from hooks.builtin.secrets import Secrets
from hooks.decisions.failure import HookError
from hooks.loading.loader import LoadedHook
from hooks.loading.options import PipelineOptions
from hooks.pipeline.driver import READ_ON_THREAD
from hooks.pipeline.pipeline import Pipeline
from tests.helpers import make_request, text_of, until


@pytest.fixture(autouse=True)
def mode() -> str:
    return "prompts alone"


def request_of(num_characters: int) -> GenerationRequest:
    return make_request(prompts=("a" * num_characters,), messages=())


LONG = make_request(messages=({"role": "user", "content": "a" * LONG_PROMPT},))


class Reader:
    """Notes the thread of every call. `read` is what it does with a prompt."""

    thread_safe = True

    def __init__(self, read: Callable[[GenerationRequest], Any] = lambda request: request) -> None:
        self.read = read
        self.threads: list[tuple[str, threading.Thread]] = []

    def on_request(self, request: GenerationRequest) -> Any:
        self.threads.append(("on_request", threading.current_thread()))
        return self.read(request)

    def __call__(self, chunk: Chunk) -> Verdict:
        self.threads.append(("call", threading.current_thread()))
        return emit(chunk.pending)

    @property
    def is_on_thread(self) -> list[tuple[str, bool]]:
        return [(name, thread is not threading.current_thread()) for name, thread in self.threads]


class Careless(Reader):
    thread_safe = False


Open = Callable[..., Pipeline]


@pytest.fixture
async def open_pipeline() -> AsyncIterator[Open]:
    made: list[Pipeline] = []

    def make(*hooks: Any, **options: Any) -> Pipeline:
        loaded = [LoadedHook.of(f"hook{i}", hook) for i, hook in enumerate(hooks)]
        made.append(Pipeline(loaded, options=PipelineOptions(**options), prompt_threads=PromptThreads(1)))
        return made[-1]

    yield make
    for pipeline in made:
        await pipeline.aclose()


async def test_the_loop_goes_on_while_a_long_prompt_is_read(open_pipeline: Open) -> None:  # contract 8.12
    may_end = threading.Event()

    def read(request: GenerationRequest) -> GenerationRequest:
        assert may_end.wait(60)
        return request

    reader = Reader(read)
    pipeline = open_pipeline(reader)
    guard = pipeline.open(LONG)
    admitting = asyncio.get_running_loop().create_task(cast(Any, guard.admit(LONG)))
    await until(lambda: reader.threads)
    other = pipeline.open(make_request())
    reader.read = lambda request: request
    assert not (await other.admit(make_request())).is_over
    may_end.set()
    assert not (await admitting).is_over
    assert reader.is_on_thread == [("on_request", True), ("on_request", False)]
    assert pipeline.tallies["hook0"].seconds > 0


@pytest.mark.parametrize(
    ("reader", "request_"),
    [(Careless(), LONG), (Reader(), request_of(READ_ON_THREAD - 10))],
    ids=["not thread-safe", "short"],
)
async def test_other_calls_stay_on_one_thread(
    open_pipeline: Open, reader: Reader, request_: GenerationRequest
) -> None:
    reader.threads.clear()
    await open_pipeline(reader).open(request_).admit(request_)
    assert reader.is_on_thread == [("on_request", False)]


async def test_prompts_that_are_not_short_are_read_on_a_thread(open_pipeline: Open) -> None:
    for num_characters in (READ_ON_THREAD, LONG_PROMPT):
        reader = Reader()
        request = request_of(num_characters)
        await open_pipeline(reader).open(request).admit(request)
        assert reader.is_on_thread == [("on_request", True)]


async def test_without_threads_every_prompt_is_read_here() -> None:
    reader = Reader()
    await Pipeline([LoadedHook.of("reader", reader)]).open(LONG).admit(LONG)
    assert reader.is_on_thread == [("on_request", False)]


async def test_a_refusal_s_text_is_shown_to_later_hooks_on_this_thread(open_pipeline: Open) -> None:
    first, second = Reader(lambda request: refuse("no", "Sorry.")), Reader()
    step = await open_pipeline(first, second).open(LONG).admit(LONG)
    assert text_of(step.released) == "Sorry."
    assert first.is_on_thread == [("on_request", True)]
    assert set(second.is_on_thread) == {("call", False)}


async def test_a_failure_on_the_thread_fails_the_request(open_pipeline: Open) -> None:
    def fail(request: GenerationRequest) -> None:
        raise SystemExit("hunter2")

    pipeline = open_pipeline(Reader(fail))
    with pytest.raises(HookError):
        await pipeline.open(LONG).admit(LONG)
    assert pipeline.tallies["hook0"].verdicts["error"] == 1


async def test_a_late_call_on_the_thread_fails_the_request(open_pipeline: Open) -> None:
    with pytest.raises(HookError):
        await open_pipeline(Reader(), hook_timeout=1e-9).open(LONG).admit(LONG)


async def test_a_client_that_leaves_meanwhile_leaves_the_others_served(open_pipeline: Open) -> None:
    may_end = threading.Event()
    reader = Reader(lambda request: may_end.wait(60) and request)
    pipeline = open_pipeline(reader)
    guard = pipeline.open(LONG)
    admitting = asyncio.get_running_loop().create_task(cast(Any, guard.admit(LONG)))
    await until(lambda: reader.threads)
    admitting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await admitting
    await guard.close()
    may_end.set()
    assert not (await pipeline.open(LONG).admit(LONG)).is_over


TEXTS = [
    "Mail ann@initech.org or call +49 30 901820. " * 400,
    "key AKIAJ7QRSTUVWX234567, password: hunter2hunter2. " * 400,
    "project bluebird and <b>project</b> bluebird, 4111 1111 1111 1111. " * 300,
    "again and again and " * 1000,
]
GUARDS = [
    lambda: Pii(prompt="redact"),
    lambda: Secrets(prompt="redact"),
    lambda: Patterns(patterns=["blue[a-z]{1,9}"], prompt="redact"),
    lambda: Phrases(["project bluebird"], prompt="redact"),
    lambda: Repetition(prompt="redact"),
]


@pytest.mark.parametrize("make", GUARDS, ids=["pii", "secrets", "patterns", "phrases", "repetition"])
def test_guards_that_ship_are_thread_safe(make: Callable[[], Any]) -> None:
    requests = [make_request(messages=({"role": "user", "content": text},)) for text in TEXTS]
    alone = [read(make(), request) for request in requests]
    guard = make()
    assert guard.thread_safe
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(len(TEXTS)) as threads:
            assert list(threads.map(lambda request: read(guard, request), requests * 2)) == alone * 2
    finally:
        sys.setswitchinterval(interval)


def read(guard: Any, request: GenerationRequest) -> list[PromptText]:
    return prompt_texts(guard.on_request(request))
