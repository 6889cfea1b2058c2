"""Async hooks, which the guard may have to wait for: they give just what plain ones give."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import (
    Channel,
    Delta,
    Deltas,
    EngineError,
    FinishReason,
    GenerationRequest,
    SamplingParams,
    Token,
    ToolCall,
    TopLogprob,
    Usage,
)
from hooks import Chunk, Decision, Verdict, emit, hold, redact, rewind, suppress, suspect, terminate
from hooks.decisions.failure import HookError
from hooks.loading.loader import LoadedHook
from hooks.loading.options import PipelineOptions
from hooks.pipeline.pipeline import Pipeline
from hooks.testing.play import vetted
from tests.helpers import make_request


@pytest.fixture(autouse=True)
def mode() -> None:
    """Workers call guards in the same way."""


@dataclass(frozen=True)
class Answer:
    """A verdict for whatever is pending then."""

    kind: str
    number: int
    other: int
    alternatives: bool
    unjudged: int | None

    def verdict(self, chunk: Chunk, judges: bool) -> Verdict | None:
        """Raises `RuntimeError` if it is to fail."""
        text = chunk.pending
        number = min(self.number, len(text))
        rest = 0 if chunk.is_final else min(self.other, len(text) - number)
        options: Any = {"alternatives": self.alternatives}
        if judges:
            options["unjudged"] = 0 if chunk.is_final else self.unjudged
        match self.kind:
            case "emit":
                return emit(text, **options)
            case "emit equal":  # the same text, as another string
                return emit("".join(list(text)), **options)
            case "emit as held":
                return emit(text, **options) if chunk.is_final else hold(0, **options)
            case "hold too much":
                return hold(len(text) + 1, **options)
            case "hold no number":
                return hold(True, **options)
            case "emit new":
                return emit(chunk.text_diff, **options)
            case "rewrite":
                return emit(text.upper(), **options)
            case "hold":
                return emit(text, **options) if chunk.is_final else hold(number, **options)
            case "hold all":
                return emit(text, **options) if chunk.is_final else hold(**options)
            case "redact":
                return redact([(0, number, "*")], hold=rest, **options)
            case "suppress":
                return suppress()
            case "suspect":
                return suspect("odd", **options)
            case "terminate":
                return terminate("bad", after=number, text="!" if self.other else None, **options)
            case "end output":
                return terminate("bad", scope="output", **options)
            case "rewind":
                return rewind("again", after=number, **options)
            case "raise":
                raise RuntimeError
        return None


class Scripted:
    """Gives its answers in turn on each stream, and keeps what it was shown."""

    def __init__(self, answers: Sequence[Answer], *, judges: bool, may_rewind: bool) -> None:
        self._answers = answers
        self.judges = judges
        self.may_rewind = may_rewind
        self.shown: list[Any] = []

    def __call__(self, chunk: Chunk) -> Verdict | None:
        told = chunk.text_diff, chunk.pending, chunk.text, chunk.tokens_diff, chunk.num_incomplete
        state = chunk.is_final, chunk.aborted, chunk.is_cut, chunk.suspicion
        self.shown.append((chunk.output_index, chunk.channel, told, state))
        number: int = chunk.state.get("number", 0)
        chunk.state["number"] = number + 1
        return self._answers[number % len(self._answers)].verdict(chunk, self.judges)


class Awaited:
    """The hook as an async one, which waits for some of its verdicts."""

    def __init__(self, hook: Scripted, rng: random.Random) -> None:
        self._hook = hook
        self._rng = rng
        self.judges, self.may_rewind = hook.judges, hook.may_rewind

    async def __call__(self, chunk: Chunk) -> Verdict | None:
        if self._rng.random() < 0.5:
            await asyncio.sleep(0)
        return self._hook(chunk)


USUAL = (
    *("emit", "emit", "emit new", "emit equal", "emit as held", "hold", "hold", "hold all"),
    *("redact", "rewrite", "suspect", "suppress"),
)
ENDING = ("terminate", "end output", "rewind", "raise", "nothing", "hold too much", "hold no number")
CHANNELS: Sequence[Channel] = ("content", "content", "content", "reasoning", "tool_call")
ENDS: Sequence[FinishReason | None] = ("stop", "length", None)


def drawn_hook(rng: random.Random) -> Scripted:
    kinds = USUAL + ENDING if rng.random() < 0.2 else USUAL
    answers = [
        Answer(
            rng.choice(kinds),
            rng.randint(0, 4),
            rng.randint(0, 2),
            rng.random() < 0.8,
            rng.choice((0, 0, 1, None)),
        )
        for _ in range(20)
    ]
    return Scripted(answers, judges=rng.random() < 0.3, may_rewind=rng.random() < 0.1)


def drawn_delta(rng: random.Random, number: int) -> Delta:
    texts = rng.choices(("a", "bc", "é", " d", ""), (4, 4, 2, 2, 1), k=rng.choice((1, 1, 1, 2, 3)))
    (oddity,) = rng.choices(("", "another text", "no tokens", "other bytes"), (9, 1, 1, 1))
    channel = rng.choice(CHANNELS)
    tokens = [
        Token(
            3 * number + i,
            text,
            b"?" if oddity == "other bytes" else text.encode(),
            -0.5,
            (TopLogprob(7, b"z", -2.0),) if rng.random() < 0.5 else (),
        )
        for i, text in enumerate(texts)
    ]
    return Delta(
        index=rng.choice((0, 0, 1)),
        text="".join(texts) + ("?" if oddity == "another text" else ""),
        tokens=() if oddity == "no tokens" else tuple(tokens),
        channel=channel,
        tool_call=ToolCall(0, "look", "call") if channel == "tool_call" else None,
        usage=Usage(3, number),
    )


def everything_told(seed: int, *, are_async: bool) -> Any:
    """All that clients, hooks, listeners and the metrics get of a request with two outputs. Some engines stop
    in the middle."""
    rng = random.Random(seed)
    hooks = [drawn_hook(rng) for _ in range(rng.randint(1, 3))]
    called = [Awaited(hook, random.Random(seed)) for hook in hooks] if are_async else hooks
    loaded = [LoadedHook.of(f"hook{i}", hook, is_shadow=rng.random() < 0.2) for i, hook in enumerate(called)]
    options = PipelineOptions(
        rewritten_tokens=rng.choice(("withhold", "keep")), usage=rng.choice(("generated", "released"))
    )
    deltas = [drawn_delta(rng, number) for number in range(rng.randint(4, 20))]
    if end := rng.choice(ENDS):
        deltas += [Delta(index=i, finish_reason=end) for i in range(2)]
    sampling = SamplingParams(n=2, logprobs=rng.choice((None, 1)))
    pipeline = Pipeline(loaded, options=options)
    decisions: list[Decision] = []
    guard = pipeline.open(
        replace(make_request(), sampling=sampling), can_rewind=True, listener=decisions.append
    )

    async def generate(_: GenerationRequest) -> Deltas:
        for delta in deltas:
            yield delta

    released: list[Delta] = []

    async def collect() -> None:
        async for delta in vetted(guard, generate):
            released.append(delta)

    error = ""
    try:
        asyncio.run(collect())
    except (HookError, EngineError) as raised:
        error = repr(raised)
    counts = [
        replace(one, seconds=0.0, slow_calls=Counter(), held_seconds=0.0, held=Counter())
        for one in pipeline.tallies.values()
    ]
    told = [replace(one, held_seconds=0.0) for one in decisions]
    return released, error, [hook.shown for hook in hooks], told, counts


@given(st.integers(0, 2**32))
def test_awaiting_a_hook_changes_nothing(seed: int) -> None:
    for own in range(5 * seed, 5 * seed + 5):
        assert everything_told(own, are_async=True) == everything_told(own, are_async=False)
