"""The guard's machine, driven by hand: no event loop, no clock, any verdicts and failures at any cut."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Channel, Delta, EngineError, SamplingParams, ToolCall
from hooks import Chunk, emit, hold, redact, rewind, suppress, suspect, terminate
from hooks.decisions.failure import HookError, HookFailure
from hooks.decisions.log import DecisionLog
from hooks.decisions.tally import Tally
from hooks.loading.loader import LoadedHook
from hooks.loading.options import PipelineOptions
from hooks.pipeline.ask import Machine, Reply, Step
from hooks.pipeline.guard import Guard
from tests.helpers import examples, make_request, make_token


@pytest.fixture(autouse=True)
def mode() -> str:
    """The machine is the same wherever a driver runs it: one run of these tests is enough."""
    return "machine"


Answer = Callable[[LoadedHook, Chunk], Reply]


def run(machine: Machine, answer: Answer) -> Step:
    """The smallest driver: it answers every question of the machine."""
    *asked, step = answered(machine, answer)
    assert not asked
    return step


def answered(machine: Machine, answer: Answer) -> Iterator[Step]:
    for said in machine:
        if isinstance(said, Step):
            yield said
        else:
            assert isinstance(said.shown, Chunk)
            said.reply = answer(said.hook, said.shown)


def never(chunk: Chunk) -> Reply:
    raise AssertionError("the machine calls no hook but on the short way")


def hook(name: str, call: Callable[[Chunk], Reply] = never, **options: Any) -> LoadedHook:
    return LoadedHook(name, call, is_async=False, **options)


def guard_of(
    *hooks: LoadedHook,
    n: int = 1,
    logprobs: int | None = 2,
    can_rewind: bool = False,
    log: DecisionLog | None = None,
    **options: Any,
) -> Guard:
    tallies = {hook.name: Tally() for hook in hooks}
    request = replace(make_request(), sampling=SamplingParams(n=n, logprobs=logprobs))
    return Guard(
        request, list(hooks), tallies, PipelineOptions(**options), can_rewind=can_rewind, decisions=log
    )


# Any verdict, and anything that is none.

ENDING = ["terminate", "output", "rewind", "fail", "nonsense", "too long", "overlap", "hold all"]
"""Replies after which the hook may get no last call: it ended the stream itself, or failed."""

BARE = ["bare emit", "bare hold", "bare redact"]
"""Replies without alternatives."""

REPLIES = st.sampled_from(
    ["emit", "emit", "emit", "rewrite", "suppress", "hold", "redact", "suspect", *BARE, *ENDING]
)


def reply_of(kind: str, chunk: Chunk) -> Reply:
    n = len(chunk.pending)
    match kind:
        case "emit":
            return emit(chunk.pending)
        case "rewrite":
            return emit(chunk.pending.upper() + "!")
        case "suppress":
            return suppress()
        case "hold":
            return emit(chunk.pending) if chunk.is_final else hold(min(2, n))
        case "suspect":
            return suspect("x")
        case "bare emit":
            return emit(chunk.pending, alternatives=False)
        case "bare hold":
            return hold(0 if chunk.is_final else n // 2, alternatives=False)
        case "bare redact":
            return redact([], hold=0 if chunk.is_final else n // 3, alternatives=False)
        case "hold all":
            return hold()
        case "redact":
            return redact([(0, n // 2, "#")], hold=0 if chunk.is_final else n - n // 2)
        case "terminate":
            return terminate("x", after=n // 2, text="bye")
        case "output":
            return terminate("x", scope="output")
        case "rewind":
            return rewind("x", after=n // 2)
        case "fail":
            return HookFailure(ValueError("its own business"))
        case "too long":
            return hold(n + 1)
        case "overlap":
            return redact([(0, n, ""), (0, n, "")])
    return kind


CHANNELS: list[tuple[Channel, ToolCall | None]] = [
    ("content", None),
    ("reasoning", None),
    ("tool_call", ToolCall(0, "f")),
    ("tool_call", ToolCall(1, "g")),
]


@st.composite
def answers(draw: st.DrawFn) -> list[Delta]:
    """Deltas of two outputs on several channels, a tool call never after a later one."""
    deltas: list[Delta] = []
    calls = [0, 0]
    for i in range(draw(st.integers(1, 10))):
        index = draw(st.integers(0, 1))
        place = draw(st.integers(0, 3))
        channel, call = CHANNELS[place]
        if call is not None:
            calls[index] = max(calls[index], call.index)
            call = CHANNELS[2 + calls[index]][1]
        texts = draw(st.lists(st.sampled_from(["", "a", "bc", "😀 "]), min_size=1, max_size=3))
        tokens = tuple(make_token(text, 10 * i + j) for j, text in enumerate(texts))
        deltas.append(Delta(index=index, text="".join(texts), tokens=tokens, channel=channel, tool_call=call))
    return [*deltas, Delta(index=0, finish_reason="stop"), Delta(index=1, finish_reason="length")]


@examples(400)
@given(answers(), st.lists(REPLIES, min_size=1, max_size=40), st.integers(1, 3), st.booleans())
def test_whatever_hooks_reply_the_promises_hold(
    deltas: list[Delta], kinds: list[str], num_hooks: int, shadow: bool
) -> None:
    """Contract 2.6, 3.3, 3.6, 4.1 and 5.1, for any replies at any cut."""
    replies: Iterator[str] = iter(kinds)
    shown: dict[tuple[str, int], list[Chunk]] = defaultdict(list)
    ended_itself: set[tuple[str, int]] = set()

    def answer(hook: LoadedHook, chunk: Chunk) -> Reply:
        key = hook.name, id(chunk.state)
        assert not any(earlier.is_final for earlier in shown[key]), "nothing comes after the last call"
        shown[key].append(chunk)
        kind = next(replies, "emit")
        if not chunk.aborted and kind in ENDING:
            ended_itself.add(key)
        return reply_of(kind, chunk)

    hooks = [hook(f"hook{i}", may_rewind=True, is_shadow=shadow and i == 0) for i in range(num_hooks)]
    guard = guard_of(*hooks, n=2)
    released: list[Delta] = []
    steps: list[Step] = []
    for delta in deltas:
        steps.append(run(guard.feed(delta), answer))
        released += steps[-1].released
        if steps[-1].error is not None or steps[-1].is_over:
            break
    assert not run(guard.close(), answer).released
    assert not run(guard.close(), answer).released, "closing twice is fine"

    for key, chunks in shown.items():
        num_last = sum(chunk.is_final for chunk in chunks)
        assert num_last == 1 or (num_last == 0 and key in ended_itself)
    for index in (0, 1):
        own = [delta for delta in released if delta.index == index]
        assert [d.finish_reason is not None for d in own[:-1]] == [False] * len(own[:-1])
        fed = [token.id for delta in deltas if delta.index == index for token in delta.tokens]
        given_ids = [token.id for delta in own for token in delta.tokens]
        assert given_ids == [i for i in fed if i in given_ids], "ids leave in the order generated"
    error = steps[-1].error
    assert error is None or (isinstance(error, HookError) and not steps[-1].released)
    if steps[-1].is_over:
        assert all(any(d.finish_reason for d in released if d.index == i) for i in (0, 1))


TEXTS = st.sampled_from(["", "a", "bc"])


@given(st.lists(st.tuples(st.lists(TEXTS, max_size=3), st.none() | TEXTS), max_size=4), st.booleans())
@examples(200)
def test_whatever_tokens_come_with_a_text_a_hook_is_shown_and_lets_through_the_same(
    came: list[tuple[list[str], str | None]], logprobs: bool
) -> None:
    """Contract 3.11. Where outputs may be rewound, fragments are made of every delta."""
    deltas = [  # an upstream's text may be another than its tokens'
        Delta(
            text="".join(texts) if text is None else text,
            tokens=tuple(
                make_token(one, 10 * i + j)._replace(position=10 * i + j) for j, one in enumerate(texts)
            ),
        )
        for i, (texts, text) in enumerate(came)
    ]

    def passed(can_rewind: bool) -> tuple[list[Any], list[Any]]:
        guard = guard_of(hook("h", may_rewind=True), logprobs=1 if logprobs else None, can_rewind=can_rewind)
        shown: list[Any] = []

        def answer(_: LoadedHook, chunk: Chunk) -> Reply:
            shown.append((chunk.text_diff, chunk.tokens_diff, chunk.num_incomplete, chunk.restored_diff))
            return emit(chunk.pending)

        steps = [run(guard.feed(delta), answer) for delta in [*deltas, Delta(finish_reason="stop")]]
        return shown, [(one.text, one.tokens) for step in steps for one in step.released]

    assert passed(True) == passed(False)


@pytest.mark.parametrize(
    ("logprobs", "released"), [(2, [("a", [0]), ("b", [])]), (None, [("ab", [0])])], ids=["told", "not told"]
)
def test_text_waits_for_no_delta_of_its_own_if_no_offset_is_told(
    logprobs: int | None, released: list[tuple[str, list[int]]]
) -> None:
    """Contract 2.4, 3.6. A client that is told offsets gets deltas whose text ends with their tokens."""
    guard = guard_of(hook("h"), logprobs=logprobs)
    run(guard.feed(Delta(text="a", tokens=(make_token("a", 0),))), lambda _, chunk: hold(1))
    given = run(
        guard.feed(Delta(text="bc", tokens=(make_token("bc", 1),))), lambda _, chunk: hold(1)
    ).released
    assert [(delta.text, [token.id for token in delta.tokens]) for delta in given] == released


def test_a_rewind_says_where_to_and_the_kept_text_is_not_released_again() -> None:
    """Contract 8.3: the client sees one unbroken stream."""
    guard = guard_of(hook("h", may_rewind=True), can_rewind=True)
    good, bad = (make_token(text, i)._replace(position=i) for i, text in enumerate(["good ", "bad"]))

    def answer(_: LoadedHook, chunk: Chunk) -> Reply:
        return rewind("bad") if "bad" in chunk.pending and not chunk.aborted else emit(chunk.pending)

    assert [d.text for d in run(guard.feed(Delta(text="good ", tokens=(good,))), answer).released] == [
        "good "
    ]
    step = run(guard.feed(Delta(text="bad", tokens=(bad,))), answer)
    assert (step.released, step.is_over) == ([], False)
    assert step.rewind is not None
    assert (step.rewind.index, step.rewind.num_tokens, step.rewind.banned) == (0, 1, None)
    assert run(guard.feed(Delta(text="good ", tokens=(good,))), answer).released == []
    end = make_token("end", 7)._replace(position=1)
    assert [d.text for d in run(guard.feed(Delta(text="end", tokens=(end,))), answer).released] == ["end"]


def test_an_engine_that_goes_back_to_an_ended_tool_call_fails_the_request() -> None:
    """Contract 2.6: the call's hooks have had their last call."""
    guard = guard_of(hook("h"))

    def say(_: LoadedHook, chunk: Chunk) -> Reply:
        return emit(chunk.pending)

    for call in (ToolCall(0, "f"), ToolCall(1, "g")):
        run(guard.feed(Delta(text="{", channel="tool_call", tool_call=call)), say)
    step = run(guard.feed(Delta(text="}", channel="tool_call", tool_call=ToolCall(0, "f"))), say)
    assert isinstance(step.error, EngineError)


def test_a_closed_guard_shows_hooks_no_more() -> None:
    """Contract 2.6: the last call was the last."""
    guard, shown = guard_of(hook("h")), list[Chunk]()

    def answer(_: LoadedHook, chunk: Chunk) -> Reply:
        shown.append(chunk)
        return hold()

    assert run(guard.feed(Delta(text="a")), answer).released == []
    run(guard.close(), answer)
    assert run(guard.feed(Delta(text="b", finish_reason="stop")), answer).released == []
    assert [(chunk.text, chunk.aborted) for chunk in shown] == [("a", False), ("a", True)]


@pytest.mark.parametrize("usage", ["generated", "released"])
def test_a_step_carries_nothing_that_was_not_decided(usage: Any) -> None:
    """Contract 3.4: held text and its tokens stay in the machine."""
    guard = guard_of(hook("h"), usage=usage)
    step = run(guard.feed(Delta(text="ab", tokens=(make_token("ab", 0),))), lambda _, c: hold(1))
    assert [(d.text, d.tokens) for d in step.released] == [("a", ())]


def test_a_call_that_changes_its_name_is_delivered_under_its_first() -> None:
    """Contract 8.3: after a rewind, the kept text is recognised as delivered."""
    emits = hook("h", lambda chunk: emit(chunk.text_diff), may_rewind=True)
    guard = guard_of(emits, can_rewind=True, tool_calls="stream")
    tokens = [make_token(text, i)._replace(position=i) for i, text in enumerate(["{", "a", "bad"])]
    names = ["f", "g", "g"]

    def delta(i: int) -> Delta:
        call = ToolCall(0, names[i])
        return Delta(text=tokens[i].text, tokens=(tokens[i],), channel="tool_call", tool_call=call)

    def answer(_: LoadedHook, chunk: Chunk) -> Reply:
        return rewind("bad") if "bad" in chunk.pending and not chunk.aborted else emit(chunk.pending)

    run(guard.feed(delta(0)), answer)
    assert run(guard.feed(delta(1)), answer).released == [replace(delta(1), tool_call=ToolCall(0, "f"))]
    assert run(guard.feed(delta(2)), answer).rewind is not None
    for i in (0, 1):
        step = run(guard.feed(delta(i)), answer)
        assert (step.released, step.is_over) == ([], False)


def test_kept_tokens_of_a_text_without_any_are_none() -> None:
    """Contract 3.6 with `rewritten_tokens: keep`: textless tokens wait for a text that has no token
    itself."""
    guard = guard_of(hook("h"), rewritten_tokens="keep")

    def answer(_: LoadedHook, chunk: Chunk) -> Reply:
        return emit(chunk.pending.upper())

    run(guard.feed(Delta(tokens=(make_token("", 0),))), answer)
    step = run(guard.feed(Delta(text="a")), answer)
    assert step.error is None
    assert [(d.text, [t.id for t in d.tokens]) for d in step.released] == [("A", [0])]
