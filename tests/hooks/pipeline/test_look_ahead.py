"""What hooks would release if a stream ended here, and that nobody notices the question (contract 3.19)."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Delta, GenerationRequest, Token
from hooks import Chunk, Verdict, emit, hold, redact, terminate
from hooks.api.decision import Decision
from hooks.builtin.json_schema import JsonSchema
from hooks.builtin.patterns import Patterns
from hooks.builtin.phrases import Phrases
from hooks.builtin.pii import Pii
from hooks.builtin.repetition import Repetition
from hooks.builtin.secrets import Secrets
from hooks.loading.loader import LoadedHook
from hooks.pipeline.open_guard import OpenGuard
from hooks.pipeline.pipeline import Pipeline
from tests.helpers import pipeline_of

TEXT = (
    'Call +1 415 555 2671 or ada@initech.com: "4111 1111 1111 1111", \\u0061da@initech.com, the blue '
    "bird's key 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, %61da%40example.com and ACME-1234. Fine."
)
REQUEST = GenerationRequest(request_id="r", model="m", endpoint="guard")


class Ends:
    """Holds the last word, and says its verdict at the end if it holds one. Its lock cannot be copied."""

    copyable = True

    def __init__(self, verdict: Callable[[Chunk], Verdict]) -> None:
        self.verdict = verdict
        self.lock = Lock()

    def __call__(self, chunk: Chunk) -> Verdict:
        chunk.state.update(hook=self, lock=self.lock)
        if chunk.is_final:
            return self.verdict(chunk) if chunk.pending else emit("")
        return hold(len(chunk.pending) - chunk.pending.rfind(" ") - 1)


PIPELINES = [
    pipeline_of(Pii()),
    pipeline_of(Secrets(), Pii(action="suppress")),
    pipeline_of(Pii(), Secrets(), Phrases(["blue bird"]), Patterns({"acme": r"ACME-\d{4}"}), Repetition()),
    pipeline_of(Phrases(["blue bird"], action="terminate", text="No."), Pii()),
    pipeline_of(Pii(), Ends(lambda chunk: emit(chunk.text[-5:]))),
    pipeline_of(Ends(lambda chunk: terminate("x")), Pii()),
    pipeline_of(Ends(lambda chunk: terminate("x", after=len(chunk.pending) // 2)), Pii()),
]


async def released(guard: OpenGuard, *deltas: Delta) -> str:
    steps = [await guard.feed(delta) for delta in deltas]
    return "".join(delta.text for step in steps for delta in step.released)


async def whole(pipeline: Pipeline, *pieces: str) -> str:
    guard = pipeline.open(REQUEST)
    return await released(guard, *[Delta(text=piece) for piece in pieces], Delta(finish_reason="stop"))


@pytest.mark.parametrize("pipeline", PIPELINES, ids=range(len(PIPELINES)))
@given(start=st.integers(0, len(TEXT) - 60), lengths=st.lists(st.integers(1, 9), min_size=2, max_size=8))
async def test_it_is_what_the_end_releases(pipeline: Pipeline, start: int, lengths: list[int]) -> None:
    guard = pipeline.open(REQUEST)
    said, pieces = "", list[str]()
    for length in lengths:
        pieces.append(TEXT[start:][:length])
        start += length
        said += await released(guard, Delta(text=pieces[-1]))
        ahead = await guard.look_ahead()
        assert ahead is not None
        assert said + ahead == await whole(pipeline, *pieces)
    said += await released(guard, Delta(finish_reason="stop"))
    assert said == await whole(pipeline, *pieces)
    await guard.close()


class Stars:
    """Holds the last word and puts stars in its place at the end. It reads what it was shown in every way."""

    copyable = True

    def __init__(self) -> None:
        self.ends: Counter[str] = Counter()

    def __call__(self, chunk: Chunk) -> Verdict:
        chunk.state.setdefault("seen", []).append(chunk.text_diff)
        chunk.request_state["num"] = chunk.request_state.get("num", 0) + 1
        assert "".join(chunk.state["seen"]) == chunk.text
        if chunk.is_final:
            self.ends[chunk.text] += 1
            return redact([(0, len(chunk.pending), "*" * chunk.request_state["num"])])
        return hold(len(chunk.pending) - chunk.pending.rfind(" ") - 1)


def _pipelines() -> list[Pipeline]:
    hidden = LoadedHook.of("hidden", Phrases(["blue bird"]), is_shadow=True)
    return [
        pipeline_of(Pii(), Secrets(), Phrases(["blue bird"]), Patterns({"acme": r"ACME-\d{4}"})),
        pipeline_of(Stars(), Pii(), Stars()),
        pipeline_of(Pii(action="suspect"), Stars(), Phrases(["blue bird"], action="terminate", text="No.")),
        Pipeline([LoadedHook.of("secrets", Secrets()), hidden, LoadedHook.of("pii", Pii())]),
    ]


PAIRS = list(zip(_pipelines(), _pipelines(), strict=True))


class Watched:
    """A guard, and all that can be seen of its work."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.tallies = pipeline.tallies
        self.counts()
        self.decisions: list[Decision] = []
        self.guard = pipeline.open(REQUEST, listener=self.decisions.append)

    def counts(self) -> list[Any]:
        taken = [tally.drain() for tally in self.tallies.values()]
        return [(one.verdicts, one.num_streams, one.num_characters) for one in taken]

    def timeless(self) -> list[Decision]:
        return [replace(decision, held_seconds=0.0) for decision in self.decisions]


@pytest.mark.parametrize("pipelines", PAIRS, ids=range(len(PAIRS)))
@given(
    start=st.integers(0, len(TEXT) - 60),
    pieces=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 2), st.booleans()), min_size=1, max_size=12),
)
async def test_a_stream_goes_on_as_if_nobody_had_asked(
    pipelines: tuple[Pipeline, Pipeline], start: int, pieces: list[tuple[int, int, bool]]
) -> None:
    asked, other = Watched(pipelines[0]), Watched(pipelines[1])
    for length, num_questions, has_token in pieces:
        text = TEXT[start:][:length] or "."
        start += length
        delta = Delta(text=text, tokens=(Token(1, text, text.encode()),) if has_token else ())
        step = await asked.guard.feed(delta)
        assert step == await other.guard.feed(delta)
        if step.is_over:
            break
        for _ in range(num_questions):
            await asked.guard.look_ahead()
    else:
        end = Delta(finish_reason="stop")
        assert await asked.guard.feed(end) == await other.guard.feed(end)
    await asked.guard.close()
    await other.guard.close()
    assert asked.timeless() == other.timeless()
    assert asked.counts() == other.counts()


async def test_nothing_of_the_stream_changes() -> None:
    hook, decisions = Stars(), list[Decision]()
    pipeline = pipeline_of(hook)
    guard = pipeline.open(REQUEST, listener=decisions.append)
    assert await released(guard, Delta(text="one two")) == "one "
    verdicts = pipeline.tallies["hook0"].verdicts
    for _ in range(3):
        assert await guard.look_ahead() == "**"
    assert not decisions
    assert pipeline.tallies["hook0"].verdicts == verdicts
    assert await released(guard, Delta(text=" three")) == "two "
    assert await released(guard, Delta(finish_reason="stop")) == "***"
    assert [decision.action for decision in decisions if decision.action != "hold"] == ["redact"]


def _holds(chunk: Chunk) -> Verdict:
    return emit(chunk.pending) if chunk.is_final else hold()


class Fails(Stars):
    def __call__(self, chunk: Chunk) -> Verdict:
        if chunk.is_final:
            raise ValueError
        return hold()


@pytest.mark.parametrize("hooks", [(_holds,), (Fails(),), (Stars(), _holds)])
async def test_a_hook_that_cannot_say_it_says_nothing(hooks: tuple[Any, ...]) -> None:
    guard = pipeline_of(*hooks).open(REQUEST)
    await released(guard, Delta(text="abc"))
    assert await guard.look_ahead() is None
    await guard.close()


async def test_hooks_before_the_one_that_holds_are_not_asked() -> None:
    guard = pipeline_of(lambda chunk: emit(chunk.pending), JsonSchema(tools=True), Pii()).open(REQUEST)
    assert await guard.look_ahead() == ""
    assert await released(guard, Delta(text="Hello, ada")) == "Hello, "
    assert await guard.look_ahead() == "ada"
    await guard.close()
