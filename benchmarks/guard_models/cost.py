"""The tokens that guard models compute to judge one stream, counted by their engine.

The stream has so many tokens of the guard's vocabulary, and is judged every 32. The bound is 1.05 times
these: the tokens of the prompt and of the stream once, and with each judgement the question after the
conversation and a block of the cache. The same guard, judging from scratch each time, is counted beside it.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.guard_models.streams import Models, made_text, run
from engine.local.classification import LocalClassifier
from engine.local.engine import LocalEngine
from engine.protocol import Delta, Deltas, GenerationRequest, Token, Tokenizer
from engine.protocol.guard_models import TokenClassifier, TokenStream
from engine.protocol.options import EngineConfig
from engine.text.tokenizer import LocalTokenizer
from hooks.builtin.judge import Judge
from hooks.builtin.stream_guard import StreamGuard
from hooks.loading.loader import LoadedHook
from hooks.pipeline.pipeline import Pipeline

WINDOW = 32
END = "<END CONVERSATION>"
"""The end of the judge's template, after the conversation."""


@dataclass
class Cost:
    guard: str
    num_computed: int
    num_from_scratch: int
    bound: float

    @property
    def of_bound(self) -> float:
        return self.num_computed / self.bound

    @property
    def times_fewer(self) -> float:
        return self.num_from_scratch / self.num_computed


async def judge_cost(folder: Path, num_tokens: int) -> Cost:
    config = EngineConfig(model=str(folder), only_guards=True)
    computed, asked = await _judge(config, num_tokens)
    from_scratch, _ = await _judge(config.model_copy(update={"enable_prefix_caching": False}), num_tokens)
    (first,) = asked[0].prompts
    num_judgements = len(asked)
    with_prompt = len(first) + num_tokens  # the first question has the layout, the prompt and a window
    tail = await _tail(config, asked[-1])
    bound = 1.05 * (with_prompt + num_judgements * (tail + config.block_size))
    return Cost("judge", computed, from_scratch, bound)


async def stream_guard_cost(folder: Path, num_tokens: int) -> Cost:
    config = EngineConfig(model=str(folder), only_guards=True)
    computed, num_judgements, num_prompt = await _stream_guard(config, num_tokens, from_scratch=False)
    uncached = config.model_copy(update={"enable_prefix_caching": False})
    from_scratch, *_ = await _stream_guard(uncached, num_tokens, from_scratch=True)
    bound = 1.05 * (num_prompt + num_tokens + num_judgements * config.block_size)
    return Cost("stream_guard", computed, from_scratch, bound)


async def _judge(config: EngineConfig, num_tokens: int) -> tuple[int, list[GenerationRequest]]:
    """Tokens computed, and what the engine was asked."""
    asked: list[GenerationRequest] = []
    guard = Judge(config.model, family="qwen3guard", least_mass=0.0, threshold=1.0, **_windows())
    async with _running(LocalEngine(config)) as engine:
        generate = engine.generate

        def seen(request: GenerationRequest) -> Any:
            asked.append(request)
            return generate(request)

        engine.generate = seen
        assert engine.tokenizer is not None
        await _play(guard, Models(generator=engine), engine.tokenizer, num_tokens)
        return engine.stats().computed_tokens_total, asked


async def _stream_guard(config: EngineConfig, num_tokens: int, *, from_scratch: bool) -> tuple[int, int, int]:
    """Tokens computed, judgements, and tokens before the reply."""
    guard = StreamGuard(config.model, threshold=1.0, **_windows())
    async with _running(LocalClassifier(config)) as model:
        counted = Counted(model, from_scratch=from_scratch)
        await _play(guard, Models(classifier=counted), model.tokenizer, num_tokens)
        prompt, *judgements = counted.num_fed
        return model.stats().computed_tokens_total, len(judgements), prompt


class Counted:
    """Implements `TokenClassifier`: notes what it is fed. `from_scratch`: each call computes the text again
    from its beginning, like a guard without a cache."""

    def __init__(self, model: LocalClassifier, *, from_scratch: bool) -> None:
        self._model = model
        self._from_scratch = from_scratch
        self.labels = model.labels
        self.max_model_len = model.max_model_len
        self.tokenizer = model.tokenizer
        self.num_fed: list[int] = []
        """Tokens of each call."""

    def open(self, *, caller: str = "", ids: Sequence[int] = ()) -> TokenStream:
        self.num_fed.append(len(ids))
        return CountedStream(self, self._model, ids, self._from_scratch)


class CountedStream:
    """Implements `TokenStream`."""

    def __init__(
        self, counted: Counted, model: TokenClassifier, ids: Sequence[int], from_scratch: bool
    ) -> None:
        self._counted = counted
        self._model = model
        self._from_scratch = from_scratch
        self._stream = model.open(ids=ids)
        self._ids = [*ids]

    @property
    def num_tokens(self) -> int:
        return len(self._ids)

    async def feed(self, ids: Sequence[int]) -> Any:
        self._counted.num_fed.append(len(ids))
        self._ids += ids
        if not self._from_scratch:
            return await self._stream.feed(ids)
        self._stream.close()
        self._stream = self._model.open()
        logits = await self._stream.feed(self._ids)
        return {group: rows[len(self._ids) - len(ids) :] for group, rows in logits.items()}

    def truncate(self, num_tokens: int) -> None:
        del self._ids[num_tokens:]
        if not self._from_scratch:
            self._stream.truncate(num_tokens)

    def close(self) -> None:
        self._stream.close()


def _windows() -> dict[str, Any]:
    return {"window": WINDOW, "first_window": WINDOW, "timeout": 600.0}


async def _play(guard: Judge | StreamGuard, models: Models, tokenizer: Tokenizer, num_tokens: int) -> None:
    """Show the guard a stream of so many tokens of its own vocabulary."""
    await guard.start(models)
    text = made_text(Random(0), 2 * num_tokens)
    ends = [0, *tokenizer.encode_text(text).ends[:num_tokens]]
    pieces = [text[start:end] for start, end in pairwise(ends)]

    async def generate(request: GenerationRequest) -> Deltas:
        for i, piece in enumerate(pieces):
            yield Delta(text=piece, tokens=(Token(i, piece, piece.encode()),))
        yield Delta(finish_reason="stop")

    request = GenerationRequest(
        request_id="r",
        model="served",
        endpoint="chat",
        messages=({"role": "user", "content": made_text(Random(1), 64)},),
    )
    pipeline = Pipeline([LoadedHook.of("guard", guard)])
    stream = await run(pipeline, request, generate)
    assert stream.num_tokens == num_tokens


async def _tail(config: EngineConfig, asked: GenerationRequest) -> int:
    """Tokens of a question after the conversation."""
    tokenizer = LocalTokenizer.load(config.model)
    (ids,) = asked.prompts
    assert not isinstance(ids, str)
    behind = tokenizer.decode(ids).rpartition(END)[2]
    return len(tokenizer.encode(END + behind, add_special_tokens=False))


@asynccontextmanager
async def _running(model: Any) -> AsyncIterator[Any]:
    await model.start()
    try:
        yield model
    finally:
        await model.aclose()


def report(costs: Sequence[Cost]) -> str:
    names = ("guard", "computed", "times the bound", "from scratch", "times fewer")
    lines = ["".join(f"{name:>17}" for name in names)]
    lines += [
        f"{one.guard:>17}{one.num_computed:17,}{one.of_bound:17.3f}{one.num_from_scratch:17,}"
        f"{one.times_fewer:17.1f}"
        for one in costs
    ]
    return "\n".join(lines)
