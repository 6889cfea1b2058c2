"""Small honest fakes that several tests share."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from pydantic import BaseModel

from engine.parsers import Parsers, Parsing
from engine.protocol import (
    Delta,
    Deltas,
    EngineError,
    EngineStats,
    FinishReason,
    GenerationRequest,
    ModelInfo,
    Prompt,
    Rewind,
    SamplingParams,
    Token,
    TopLogprob,
    Usage,
)
from engine.protocol.fields.support import FieldSupport
from engine.streams.feeding import feed_all, iterated
from engine.streams.flow import Stage, StagedFlow
from engine.streams.rewindable import Rewindable
from engine.upstream.pool.options import PoolOptions
from hooks.api import Chunk, Verdict
from hooks.api.decision import Listener
from hooks.loading.loader import LoadedHook
from hooks.loading.options import PipelineOptions
from hooks.pipeline.open_guard import GuardFactory, OpenGuard
from hooks.pipeline.pipeline import Pipeline
from hooks.testing.play import behind_worker, vetted
from proxy.settings.groups import options_of
from proxy.settings.model import ModelSettings
from tests.processes import WAIT_LIMIT

Options = TypeVar("Options", bound=BaseModel)


def make_request(*, n: int = 1, prompts: Sequence[Prompt] = (), **fields: Any) -> GenerationRequest:
    fields.setdefault("messages", ({"role": "user", "content": "Hi"},))
    return GenerationRequest(
        request_id="r1",
        model="m",
        endpoint="chat",
        prompts=tuple(prompts),
        sampling=SamplingParams(n=n, logprobs=2),
        **fields,
    )


def make_token(text: str, token_id: int, raw: bytes | None = None) -> Token:
    """A token with a logprob and an alternative that nothing else has."""
    raw = text.encode() if raw is None else raw
    return Token(token_id, text, raw, -0.25, (TopLogprob(token_id + 1000, b"alt:" + raw, -0.5),))


def make_deltas(
    pieces: Iterable[str], *, first_id: int = 0, finish: bool = True, **fields: Any
) -> list[Delta]:
    """One token a piece, one piece a delta, and a finish by itself."""
    deltas = [
        Delta(text=piece, tokens=(make_token(piece, first_id + i),), **fields)
        for i, piece in enumerate(pieces)
    ]
    return [*deltas, Delta(finish_reason="stop", index=fields.get("index", 0))] if finish else deltas


class Script:
    """A hook that answers with what it is told to, and remembers the chunks it was shown."""

    def __init__(self, answer: Callable[[Chunk], Any]) -> None:
        self.answer = answer
        self.chunks: list[Chunk] = []

    def __call__(self, chunk: Chunk) -> Verdict:
        self.chunks.append(chunk)
        verdict: Verdict = self.answer(chunk)
        return verdict

    @property
    def finals(self) -> list[Chunk]:
        return [chunk for chunk in self.chunks if chunk.is_final]


def pipeline_of(*hooks: Any, **options: Any) -> Pipeline:
    return Pipeline(
        [LoadedHook.of(f"hook{i}", hook) for i, hook in enumerate(hooks)], options=PipelineOptions(**options)
    )


class Source:
    """An engine's side of one request: yields deltas, and knows whether it was closed before its end."""

    def __init__(self, deltas: Iterable[Delta], error: Exception | None = None) -> None:
        self.deltas = list(deltas)
        self.error = error
        self.requests: list[GenerationRequest] = []
        self.taken = 0
        self.closed_early = False

    async def __call__(self, request: GenerationRequest) -> Deltas:
        self.requests.append(request)
        try:
            for delta in self.deltas:
                self.taken += 1
                yield delta
            if self.error is not None:
                raise self.error
        except GeneratorExit:
            self.closed_early = True
            raise


class Teller:
    """An engine that can go back. At each place it says the first of the words that `tell` gives for what it
    said so far, which is not banned there; "" is the end. A word is a token, and its place in `words` its id.
    """

    def __init__(
        self,
        tell: Callable[[tuple[str, ...]], Sequence[str]],
        sizes: Iterable[int] = (),
        *,
        max_tokens: int = 40,
        parsers: Parsers | None = None,
    ) -> None:
        """`sizes`: of the first deltas, in tokens; the others have one."""
        self.tell = tell
        self.sizes = list(sizes)
        self.max_tokens = max_tokens
        self.parsers = parsers
        self.words: list[str] = [""]
        self.rewinds: list[Rewind] = []
        self.num_generated = 0
        self.said: list[list[str]] = []
        """By each output, as it stands."""

    def __call__(self, request: GenerationRequest) -> Deltas:
        stages: list[Stage] = [Rewindable()]
        if self.parsers is not None:
            stages.append(Parsing(self.parsers, request))
        return iterated(StagedFlow(partial(feed_all, self.generate(request)), stages))

    async def generate(self, request: GenerationRequest) -> Deltas:
        self.said = [[] for _ in range(request.num_outputs)]
        self.banned: list[dict[int, set[int]]] = [{} for _ in self.said]
        running = dict.fromkeys(range(len(self.said)))
        sizes = iter(self.sizes)
        while running:
            index = next(iter(running))
            delta = self.go_on(index, next(sizes, 1))
            del running[index]
            if delta.finish_reason is None:
                running[index] = None
            rewind = yield delta
            if isinstance(rewind, Rewind):
                self.go_back(rewind)
                running[rewind.index] = None

    def go_on(self, index: int, size: int) -> Delta:
        tokens: list[Token] = []
        finish: FinishReason | None = None
        said = self.said[index]
        while len(tokens) < size and finish is None:
            banned = self.banned[index].get(len(said), set())
            left = [word for word in self.tell(tuple(said)) if self.id_of(word) not in banned]
            if not left:
                finish = "content_filter"
                break
            word = left[0]
            said.append(word)
            self.num_generated += 1
            tokens.append(make_token(word, self.id_of(word), raw=(word or "</s>").encode()))
            finish = "stop" if not word else "length" if len(said) == self.max_tokens else None
        usage = Usage(1, self.num_generated)
        text = "".join(t.text for t in tokens)
        return Delta(index=index, text=text, tokens=tuple(tokens), finish_reason=finish, usage=usage)

    def go_back(self, rewind: Rewind) -> None:
        self.rewinds.append(rewind)
        said, banned = self.said[rewind.index], self.banned[rewind.index]
        ids = (self.id_of(said[rewind.num_tokens]),) if rewind.banned is None else rewind.banned
        for place in [place for place in banned if place > rewind.num_tokens]:
            del banned[place]
        banned.setdefault(rewind.num_tokens, set()).update(ids)
        del said[rewind.num_tokens :]

    def id_of(self, word: str) -> int:
        if word not in self.words:
            self.words.append(word)
        return self.words.index(word)


mode = "in-process"
"""`guard_all` runs the hooks here: `in-process`, or behind a worker's channel (set by tests/hooks)."""


async def guard_all(
    pipeline: Pipeline,
    deltas: Iterable[Delta] | Source | Teller,
    request: GenerationRequest | None = None,
    *,
    can_rewind: bool = False,
    listener: Listener | None = None,
) -> list[Delta]:
    """The deltas that a client may have of `deltas`."""
    source = deltas if isinstance(deltas, Source | Teller) else Source(deltas)
    request = request or make_request()
    async with opened(pipeline, request, can_rewind=can_rewind, listener=listener) as guard:
        async with aclosing(vetted(guard, source)) as released:
            return [delta async for delta in released]


@asynccontextmanager
async def opened(pipeline: Pipeline, request: GenerationRequest, **options: Any) -> AsyncIterator[OpenGuard]:
    """A guard of the pipeline's. In worker mode all that it is told and says goes through a real socket, with
    the worker's side of it on this same loop, so that a test can look at what its hooks were shown."""
    if mode == "in-process":
        yield pipeline.open(request, **options)
        return
    try:
        async with behind_worker(pipeline) as pool:
            yield pool.open(request, **options)
    finally:
        for name, tally in pool.tallies.items():
            pipeline.tallies[name].add(tally)


def verdicts_of(opener: GuardFactory) -> dict[str, Counter[str]]:
    """How often each hook took each action."""
    return {name: tally.verdicts for name, tally in opener.tallies.items()}


def text_of(deltas: Iterable[Delta], channel: str = "content", index: int = 0) -> str:
    return "".join(d.text for d in deltas if d.channel == channel and d.index == index)


def ids_of(deltas: Iterable[Delta], index: int = 0) -> list[int | None]:
    return [token.id for d in deltas if d.index == index for token in d.tokens]


def finish_of(deltas: Iterable[Delta], index: int = 0) -> tuple[str | None, str | int | None]:
    """The finish of an output, as (finish_reason, stop_reason); fails if there is not exactly one, last."""
    own = [d for d in deltas if d.index == index]
    assert [d.finish_reason is not None for d in own] == [False] * (len(own) - 1) + [True]
    return own[-1].finish_reason, own[-1].stop_reason


def recut(deltas: Sequence[Delta], sizes: Iterable[int]) -> list[Delta]:
    """The same tokens in other deltas: `sizes` tokens to each, and what is left to the last."""
    tokens = [token for delta in deltas for token in delta.tokens]
    cut: list[Delta] = []
    for size in sizes:
        if not tokens:
            break
        taken, tokens = tokens[: max(1, size)], tokens[max(1, size) :]
        cut.append(Delta(text="".join(t.text for t in taken), tokens=tuple(taken)))
    if tokens:
        cut.append(Delta(text="".join(t.text for t in tokens), tokens=tuple(tokens)))
    return [*cut, replace(deltas[-1], text="", tokens=())]


def examples(count: int) -> settings:
    """`count` for each 100 examples of the profile: a tenth as many in `make test`, five times as many in
    `make test-all`."""
    return settings(max_examples=count * settings.default.max_examples // 100, deadline=None)


def draws(count: int) -> int:
    """`count` in `make test-all`, and a third of it in `make test`."""
    return count if settings.default.max_examples > 100 else max(1, count // 3)


def slow(*values: Any) -> Any:
    """A case of `pytest.mark.parametrize` that takes long and finds little beside the others."""
    return pytest.param(*values, marks=pytest.mark.slow)


async def until(is_so: Callable[[], Any]) -> None:
    """Wait for it, for `WAIT_LIMIT` seconds at most."""
    async with asyncio.timeout(WAIT_LIMIT):
        while not is_so():
            await asyncio.sleep(0.001)


class ScriptedEngine:
    """An engine that plays what a function makes of the request: deltas to yield, errors to raise, awaitables
    to wait for. Counts as the real ones do."""

    info = ModelInfo(max_model_len=1024)
    fields = FieldSupport()
    tokenizer = None

    def __init__(self, script: Callable[[GenerationRequest], Iterable[Any]]) -> None:
        self.script = script
        self.requests: list[GenerationRequest] = []
        self.running = 0
        self.aborted = 0
        self.healthy = True
        self.stopped = asyncio.Event()

    async def start(self) -> None:
        self.stopped.clear()

    async def generate(self, request: GenerationRequest) -> Deltas:
        self.requests.append(request)
        self.running += 1
        try:
            for item in self.script(request):
                if isinstance(item, Delta):
                    yield item
                    await asyncio.sleep(0)
                elif isinstance(item, Exception):
                    raise item
                else:
                    await self._wait(item)
        except (GeneratorExit, asyncio.CancelledError):
            self.aborted += 1
            raise
        finally:
            self.running -= 1

    async def _wait(self, event: asyncio.Event) -> None:
        stopped, waited = (asyncio.get_running_loop().create_task(e.wait()) for e in (self.stopped, event))
        try:
            await asyncio.wait([stopped, waited], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            waited.cancel()
        if self.stopped.is_set():
            raise EngineError("The engine was stopped.", status=503)

    def stats(self) -> EngineStats:
        return EngineStats(num_running=self.running, aborted_total=self.aborted)

    def check_room(self, caller: str) -> None:
        pass

    def check_health(self) -> None:
        if not self.healthy:
            raise EngineError("The engine has failed.", status=503)

    async def aclose(self) -> None:
        self.stopped.set()


def constants_of(options: type[BaseModel], given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `given` that are constants of the class, or follow from its options, and no options."""
    others = {name: value for name, value in given.items() if name not in options_of(options)}
    assert all(hasattr(options, name) for name in others), sorted(others)
    are_derived = {name for name in others if isinstance(getattr(options, name), property)}
    return {
        name: property(lambda _, value=value: value) if name in are_derived else value
        for name, value in others.items()
    }


def options_with(options: type[Options], **given: Any) -> Options:
    """The options `given`, of a class with other constants."""
    constants = constants_of(options, given)
    changed = type(options.__name__, (options,), {"__module__": options.__module__, **constants})
    return changed(**{name: value for name, value in given.items() if name not in constants})


def pooled(**given: Any) -> ModelSettings:
    """A model behind upstreams of OpenAI's API. `given` may have constants of their pool."""
    constants = {name: value for name, value in given.items() if name not in options_of(ModelSettings)}
    options = {name: value for name, value in given.items() if name not in constants}
    made = ModelSettings(engine="openai", **options)
    pool = options_with(PoolOptions, **made.parts.pool.model_dump(), **constants)
    return made.model_copy(update={"parts": made.parts.model_copy(update={"pool": pool})})
