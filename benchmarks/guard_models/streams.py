"""Streams that are guarded as a server guards them, and when their pieces came."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import pairwise

from engine.guard_models import TokenClassifier
from engine.protocol import Delta, Engine, GenerationRequest, SamplingParams
from hooks.pipeline.decision import Decision
from hooks.pipeline.pipeline import Pipeline
from hooks.testing.play import vetted

_WORDS = ("the", "order", "of", "a", "blue", "lamp", "was", "sent", "on", "day", "two", "and", "it", "will")

Generate = Callable[[GenerationRequest], AsyncGenerator[Delta, None]]


class Models:
    """Implements `GuardModels`: started models, whatever names hooks give."""

    def __init__(self, generator: Engine | None = None, classifier: TokenClassifier | None = None) -> None:
        self._generator = generator
        self._classifier = classifier

    async def generator(self, name: str) -> Engine:
        assert self._generator is not None
        return self._generator

    async def classifier(self, name: str) -> TokenClassifier:
        assert self._classifier is not None
        return self._classifier


@dataclass
class Stream:
    """One answer. Times are monotonic seconds."""

    began: float = 0.0
    generated: list[float] = field(default_factory=list)
    """When the model's tokens came, each one's time."""
    released: list[tuple[float, int]] = field(default_factory=list)
    """When pieces of text left the guard, and the tokens of each."""
    max_unjudged: int = 0
    """The most tokens at a time that were out and not judged."""

    @property
    def first(self) -> float:
        """Seconds to the first released text."""
        return self.released[0][0] - self.began

    def gaps(self, since: float) -> list[float]:
        """Seconds between tokens of the model, from this time on."""
        times = [at for at in self.generated if at >= since]
        return [after - before for before, after in pairwise(times)]

    def seconds_per_token(self, since: float) -> float:
        """Of what was released, from this time on."""
        pieces = [piece for piece in self.released if piece[0] >= since]
        num_tokens = sum(number for _, number in pieces[1:])
        return (pieces[-1][0] - pieces[0][0]) / num_tokens


async def run(pipeline: Pipeline, request: GenerationRequest, generate: Generate) -> Stream:
    stream = Stream()

    def hear(decision: Decision) -> None:
        stream.max_unjudged = max(stream.max_unjudged, decision.max_unjudged)

    async def timed(asked: GenerationRequest) -> AsyncGenerator[Delta, None]:
        async with aclosing(generate(asked)) as deltas:
            async for delta in deltas:
                stream.generated += [time.perf_counter()] * len(delta.tokens)
                yield delta

    stream.began = time.perf_counter()
    guard = pipeline.open(request, listener=hear)
    async with aclosing(vetted(guard, timed)) as released:
        async for delta in released:
            if delta.tokens:
                stream.released.append((time.perf_counter(), len(delta.tokens)))
    return stream


async def run_many(pipeline: Pipeline, engine: Engine, prompts: list[str], max_tokens: int) -> list[Stream]:
    """All streams at the same time."""
    sampling = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
    requests = [
        GenerationRequest(
            request_id=f"r{i}",
            model="served",
            endpoint="chat",
            messages=({"role": "user", "content": prompt},),
            sampling=sampling,
        )
        for i, prompt in enumerate(prompts)
    ]
    return await asyncio.gather(*(run(pipeline, request, engine.generate) for request in requests))


def made_text(rng: random.Random, num_words: int) -> str:
    return " ".join(rng.choice(_WORDS) for _ in range(num_words))
