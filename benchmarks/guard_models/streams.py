"""Streams that are guarded as a server guards them, and when their pieces came."""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from engine.protocol import Deltas, Engine, GenerationRequest, SamplingParams
from engine.protocol.guard_models import TokenClassifier
from hooks.api.decision import Decision
from hooks.pipeline.pipeline import Pipeline
from hooks.testing.play import vetted

_WORDS = ("the", "order", "of", "a", "blue", "lamp", "was", "sent", "on", "day", "two", "and", "it", "will")

Generate = Callable[[GenerationRequest], Deltas]


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

    first: float = 0.0
    """The time at which the first text left the guard."""
    first_cpu: float = 0.0
    """CPU seconds of the process from the request to the first text."""
    ended: float = 0.0
    num_tokens: int = 0
    """Released tokens."""
    max_unjudged: int = 0
    """The most tokens at a time that were out and not judged."""


async def run(pipeline: Pipeline, request: GenerationRequest, generate: Generate) -> Stream:
    stream = Stream()

    def hear(decision: Decision) -> None:
        stream.max_unjudged = max(stream.max_unjudged, decision.max_unjudged)

    guard = pipeline.open(request, listener=hear)
    began = time.process_time()
    async with aclosing(vetted(guard, generate)) as released:
        async for delta in released:
            if delta.tokens and not stream.num_tokens:
                stream.first = time.perf_counter()
                stream.first_cpu = time.process_time() - began
            stream.num_tokens += len(delta.tokens)
    stream.ended = time.perf_counter()
    return stream


async def run_many(
    pipeline: Pipeline, engine: Engine, prompts: list[str], max_tokens: int, *, cache_salt: str | None = None
) -> list[Stream]:
    """All streams at the same time."""
    sampling = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
    requests = [
        GenerationRequest(
            request_id=f"r{i}",
            model="served",
            endpoint="chat",
            messages=({"role": "user", "content": prompt},),
            sampling=sampling,
            cache_salt=cache_salt,
        )
        for i, prompt in enumerate(prompts)
    ]
    return await asyncio.gather(*(run(pipeline, request, engine.generate) for request in requests))


def made_text(rng: random.Random, num_words: int) -> str:
    return " ".join(rng.choice(_WORDS) for _ in range(num_words))
