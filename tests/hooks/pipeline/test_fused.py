"""Fused guards release what they release when each is called with every chunk."""

import asyncio
import itertools
import math
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Delta, GenerationRequest, SamplingParams, Token, ToolCall, Usage
from hooks import Chunk, Verdict, emit, hold
from hooks.api.decision import Decision
from hooks.builtin.patterns import Patterns
from hooks.builtin.phrases import Phrases
from hooks.builtin.pii import Pii
from hooks.builtin.secrets import Secrets
from hooks.loading.fuse import fuse
from hooks.loading.loader import LoadedHook
from hooks.loading.options import PipelineOptions
from hooks.pipeline.pipeline import Pipeline
from hooks.testing.play import vetted
from tests.helpers import Source, examples, make_request, text_of
from tests.hooks.builtin.streams import cut
from tests.hooks.detect.automaton.test_automaton import FRAGMENTS


@pytest.fixture(autouse=True)
def mode() -> str:
    return "no worker"


class Shouts:
    """An author's own hook: it changes text, and holds the last character."""

    def __call__(self, chunk: Chunk) -> Verdict:
        if chunk.is_final or not chunk.pending:
            return emit(chunk.pending.replace("w", "W"))
        return (
            hold(1)
            if chunk.pending == chunk.pending.replace("w", "W")
            else emit(chunk.pending.replace("w", "W"))
        )


LIST = ["the weir", "zoe was", "heron", "12 3", "[EMAIL_ADDRESS] said"]
HOOKS: list[Any] = [
    Phrases(LIST),
    Phrases(LIST, action="suppress"),
    Phrases(["harbour was", "quiet"], action="terminate"),
    Pii(),
    Pii(action="suspect"),
    Secrets(),
    Secrets(channels=["reasoning"]),
    Patterns({"ticket": "T-[0-9]{6}", "word": "we[a-z]{0,3}r"}),
    Shouts(),
]
WORDS = [
    "the ",
    "weir ",
    "heron",
    " stood",
    " zoe",
    " was",
    "zoe@millrace.example",
    "T-12345",
    "6",
    "[EMAIL",
    "ADDRESS",
    "]",
]
MARKS = ["_", "`", "**", "~", "<b>", "<", "\\n", "\n    ", "\n", "&amp;", "%41", "\u3164", "\u00ad"]
"""Marks of code, Markdown and HTML, and characters that are not seen."""
WIDE = {code: code + 0xFEE0 for code in range(ord("!"), ord("~") + 1)}
"""Letters, digits and marks of full width, by those of ASCII."""
VALUES = ["AKIAZ7Q3TNNR5XWMPLQK ", "DE89370400440532013000 ", "T-123456 "]
IN_WIDE = [one.translate(WIDE) for one in (*WORDS, *VALUES)]
TEXTS = st.lists(st.sampled_from([*WORDS, *WORDS, *MARKS, *FRAGMENTS, *VALUES, *IN_WIDE]), max_size=16).map(
    "".join
)
REQUEST = replace(make_request(), sampling=SamplingParams(n=1))


def opened(
    hooks: Sequence[tuple[Any, bool]], request: GenerationRequest, *, joint: bool
) -> tuple[Pipeline, Any]:
    pipeline = Pipeline(
        [LoadedHook.of(f"hook{i}", hook, is_shadow=is_shadow) for i, (hook, is_shadow) in enumerate(hooks)]
    )
    if not joint:
        pipeline._runs = []
    return pipeline, pipeline.open(request)


def everything(
    hooks: Sequence[tuple[Any, bool]], deltas: Sequence[Delta], request: GenerationRequest, *, joint: bool
) -> tuple[Any, ...]:
    """Each delta's text and tokens, joined, and the counts of what was decided."""
    pipeline, guard = opened(hooks, request, joint=joint)

    async def collect() -> list[Delta]:
        async with aclosing(vetted(guard, Source(deltas))) as released:
            return [delta async for delta in released]

    released = asyncio.run(collect())
    tallies = [(one.others, one.num_streams) for one in pipeline.tallies.values()]
    tokens = [token for delta in released for token in delta.tokens]
    last = released[-1]
    texts = [text_of(released, channel) for channel in ("content", "reasoning")]
    return texts, tokens, last.finish_reason, last.stop_reason, tallies


def deltas_of(pieces: Sequence[str], *, with_tokens: bool, channel: Any) -> list[Delta]:
    return [
        Delta(text=piece, channel=channel, tokens=(Token(i, piece, piece.encode()),) if with_tokens else ())
        for i, piece in enumerate(pieces)
    ]


@given(
    hooks=st.lists(
        st.tuples(st.sampled_from(HOOKS), st.sampled_from([False, False, False, True])),
        min_size=1,
        max_size=4,
    ),
    text=TEXTS,
    places=st.lists(st.integers(1, 200), max_size=60),
    with_tokens=st.booleans(),
    channel=st.sampled_from(["content", "content", "reasoning"]),
    end=st.sampled_from(["stop", "length"]),
)
@examples(300)
def test_wherever_a_stream_ends_the_same_was_released(
    hooks: list[tuple[Any, bool]], text: str, places: list[int], with_tokens: bool, channel: Any, end: Any
) -> None:
    deltas = deltas_of(cut(text, places), with_tokens=with_tokens, channel=channel)
    for count in {len(deltas), len(deltas) // 2, len(deltas) * 3 // 4}:
        stream = [*deltas[:count], Delta(finish_reason=end)]
        ours, theirs = (everything(hooks, stream, REQUEST, joint=joint) for joint in (True, False))
        if end == "length" and len(hooks) > 1 and ours != theirs:
            assert_withholds_less(ours, theirs, hooks, [*deltas[:count], Delta(finish_reason="stop")])
        else:
            assert ours == theirs


@given(
    hooks=st.lists(st.sampled_from(HOOKS), min_size=1, max_size=3),
    text=TEXTS,
    places=st.lists(st.integers(1, 200), max_size=60),
)
@examples(100)
def test_a_listener_that_needs_no_holds_receives_the_decisions_of_guards_that_are_fused(
    hooks: list[Any], text: str, places: list[int]
) -> None:  # contract 4.5, 8.14
    def decided(*, joint: bool) -> list[Any]:
        made: list[Decision] = []
        pipeline = Pipeline([LoadedHook.of(f"hook{i}", hook) for i, hook in enumerate(hooks)])
        if not joint:
            pipeline._runs = []
        guard = pipeline.open(REQUEST, listener=made.append, min_held=math.inf)
        deltas = [*deltas_of(cut(text, places), with_tokens=False, channel="content")]

        async def run() -> None:
            async with aclosing(vetted(guard, Source([*deltas, Delta(finish_reason="stop")]))) as released:
                async for _ in released:
                    pass

        asyncio.run(run())
        told = [
            (d.hook, d.action, d.reason, d.offset, d.num_withheld, d.num_released, d.withheld) for d in made
        ]
        return sorted(one for one in told if one[1] != "hold")

    assert decided(joint=True) == decided(joint=False)


def assert_withholds_less(
    ours: tuple[Any, ...], theirs: tuple[Any, ...], hooks: Sequence[tuple[Any, bool]], stream: list[Delta]
) -> None:
    """Where a client cuts a stream, each guard withholds what may be the beginning of a match. A guard sees
    the end where the guard before it withholds. Fused guards have decided that text before, from the text
    that followed: they release it, as they do if the stream is not cut."""
    uncut = everything(hooks, stream, REQUEST, joint=False)
    for channel in (0, 1):
        assert ours[0][channel].startswith(theirs[0][channel])
        assert uncut[0][channel].startswith(ours[0][channel])


@pytest.mark.parametrize("step", [1, 2, 3, 5])
@pytest.mark.parametrize(
    ("guard", "value"),
    [
        (Secrets(), "AKIAZ7Q3TNNR5XWMPLQK"),
        (Secrets(), "ghp_16C7e42F292c6912E7710c838347Ae178B4a"),
        (Pii(), "DE89370400440532013000"),
        (Pii(), "DE\u00ad89370400440532013000"),
    ],
)
def test_a_value_in_wide_letters_is_found_though_a_part_was_read_for_its_guard(
    guard: Any, value: str, step: int
) -> None:
    value = value.translate(WIDE)
    text = f"The ships went by, and they said: {value} is it. "
    pieces = cut(text, range(step, len(text), step))
    deltas = [*deltas_of(pieces, with_tokens=False, channel="content"), Delta(finish_reason="stop")]
    (content, _), *_ = everything([(guard, False)], deltas, REQUEST, joint=True)
    assert content == everything([(guard, False)], deltas, REQUEST, joint=False)[0][0]
    assert value not in content


class Cinema:
    """An author's own hook, with a method that is no screen."""

    def screen(self, film: str) -> str:
        return film

    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(self.screen(chunk.pending))


def test_a_hook_with_something_else_named_screen_is_called_with_each_chunk() -> None:
    deltas = [*deltas_of(["a", "b"], with_tokens=False, channel="content"), Delta(finish_reason="stop")]
    texts, *_ = everything([(Cinema(), False), (Phrases(["blue"]), False)], deltas, REQUEST, joint=True)
    assert texts[0] == "ab"
    assert fuse([LoadedHook.of("cinema", Cinema())], {}) == []


@pytest.mark.parametrize("with_tokens", [False, True])
def test_every_verdict_is_counted_once_a_stream_ended_early(
    with_tokens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count()  # a call takes a second
    monkeypatch.setattr("hooks.pipeline.driver.monotonic", lambda: float(next(ticks)))
    pipeline, guard = opened([(Phrases(LIST), False), (Pii(), False)], REQUEST, joint=True)
    deltas = deltas_of(["Well, ", *[" word"] * 40], with_tokens=with_tokens, channel="content")

    async def leave_early() -> None:
        await guard.feed(Delta())
        for delta in deltas:
            await guard.feed(delta)
        await guard.close()

    asyncio.run(leave_early())
    counts = [one.num_emitted + one.num_holds for one in pipeline.tallies.values()]
    # The last call of a stream that ended early has no verdict.
    assert counts == [len(deltas)] * 2
    assert [one.num_holds > 0 for one in pipeline.tallies.values()] == [False, True]
    assert all(one.seconds > len(deltas) / 3 for one in pipeline.tallies.values())  # each has half
    assert sum(one.seconds for one in pipeline.tallies.values()) == next(ticks) / 2
    # Each guard is called by itself with the first chunk, and at the end.
    assert [one.calls.total() for one in pipeline.tallies.values()] == [len(deltas) + 2] * 2


def test_text_without_tokens_counts_as_no_released_usage() -> None:
    hooks = [LoadedHook.of("pii", Pii())]
    pipeline = Pipeline(hooks, options=PipelineOptions(usage="released"))
    deltas = [Delta(text="Well, "), *(Delta(text=" word", usage=Usage(3, number)) for number in range(1, 20))]

    async def collect() -> list[Delta]:
        async with aclosing(
            vetted(pipeline.open(REQUEST), Source([*deltas, Delta(finish_reason="stop")]))
        ) as released:
            return [delta async for delta in released]

    released = asyncio.run(collect())
    assert text_of(released) == "Well, " + " word" * 19
    assert not any(delta.usage.completion_tokens for delta in released if delta.usage is not None)


def test_the_counts_of_a_reading_do_not_grow_with_the_stream() -> None:
    _, guard = opened([(Phrases(LIST), False), (Pii(), False)], REQUEST, joint=True)

    async def read() -> None:
        await guard.feed(Delta())
        for delta in deltas_of(["Well, ", *[" word"] * 2000], with_tokens=False, channel="content"):
            await guard.feed(delta)

    asyncio.run(read())
    reading = guard._guard._outputs[0].streams["content"].stages[0]._reading
    assert sum(reading.counts.values()) > 1000
    assert len(reading.counts) <= 2**2
    assert len(reading._text) < 2000


@pytest.mark.parametrize("step", [1, 3, 100])
@pytest.mark.parametrize("joint", [True, False])
def test_a_closing_text_comes_after_the_text_that_fused_guards_held(step: int, joint: bool) -> None:
    """Contract 3.3: what leaves does not depend on the cut."""
    hooks = [(Phrases(["enough"], action="terminate", text="Sorry."), False), (Phrases(["the weir"]), False)]
    text = "Here is the harbour, and the we"
    deltas = deltas_of(cut(text, range(step, len(text), step)), with_tokens=False, channel="content")
    offence = deltas_of(["That is enough", " now. "], with_tokens=False, channel="reasoning")
    texts, *_ = everything(hooks, [*deltas, *offence], REQUEST, joint=joint)
    assert texts[0] == f"{text}Sorry."


def test_the_orders_in_which_clients_name_hooks_make_no_automaton_each() -> None:
    allowed = [LoadedHook.of(f"h{i}", Phrases([f"word{i}"])) for i in range(4)]
    pipeline = Pipeline([LoadedHook.of("pii", Pii())], allowed)
    for names in permutations(hook.name for hook in allowed):
        pipeline.open(replace(REQUEST, hooks=names))
    assert len(pipeline._screens) == 5


@given(
    hooks=st.lists(st.sampled_from(HOOKS), min_size=1, max_size=3),
    pieces=st.lists(
        st.tuples(
            st.integers(0, 1),
            st.sampled_from(["content", "content", "reasoning", "tool_call"]),
            st.sampled_from([*WORDS, *MARKS, *VALUES]),
        ),
        max_size=40,
    ),
    lead=st.sampled_from(["", "the we", "token = ", "T-1"]),
)
@examples(200)
def test_channels_outputs_and_calls_that_take_turns_are_released_the_same(
    hooks: list[Any], pieces: list[tuple[int, Any, str]], lead: str
) -> None:
    messages = ({"role": "user", "content": "Hello?"}, {"role": "assistant", "content": lead})
    request = replace(REQUEST, messages=messages, sampling=SamplingParams(n=2))
    deltas = [
        Delta(index, text, channel=channel, tool_call=ToolCall(0, "f") if channel == "tool_call" else None)
        for index, channel, text in pieces
    ]
    deltas += [Delta(index=index, finish_reason="stop") for index in (0, 1)]
    ours, theirs = (released_by(hooks, deltas, request, joint=joint) for joint in (True, False))
    assert ours == theirs


def released_by(
    hooks: Sequence[Any], deltas: Sequence[Delta], request: GenerationRequest, *, joint: bool
) -> dict[tuple[int, str], str]:
    _, guard = opened([(hook, False) for hook in hooks], request, joint=joint)
    texts: dict[tuple[int, str], str] = {}

    async def collect() -> None:
        async with aclosing(vetted(guard, Source(deltas))) as released:
            async for delta in released:
                key = delta.index, delta.channel
                texts[key] = texts.get(key, "") + delta.text

    asyncio.run(collect())
    return texts
