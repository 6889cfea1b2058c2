"""A hook that judges says how much is not judged yet, and listeners hear it (contract 3.17)."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from engine.protocol import Delta
from hooks import Chunk, Decision, Verdict, emit, hold, redact, rewind, suppress, suspect, terminate
from hooks.decisions.failure import HookError
from hooks.loading.loader import LoadedHook
from hooks.pipeline.pipeline import Pipeline
from tests.helpers import (
    Script,
    Teller,
    guard_all,
    make_deltas,
    make_request,
    make_token,
    opened,
    pipeline_of,
    text_of,
)


class Judges(Script):
    judges = True


def release_first(num_unjudged: int) -> Callable[[Chunk], Verdict]:
    """The last characters are never judged, but at the end."""

    def answer(chunk: Chunk) -> Verdict:
        return emit(chunk.pending, unjudged=0 if chunk.is_final else min(num_unjudged, len(chunk.text)))

    return answer


async def judged_by(hook: Any, deltas: Any, **options: Any) -> list[Decision]:
    told: list[Decision] = []
    await guard_all(pipeline_of(hook), deltas, listener=told.append, **options)
    return [one for one in told if one.action == "judged"]


def counts(decision: Decision) -> tuple[int, int, int]:
    return decision.num_judged, decision.num_unjudged, decision.max_unjudged


async def test_the_end_of_a_stream_tells_what_was_judged() -> None:  # contract 3.17
    (decision,) = await judged_by(Judges(release_first(3)), make_deltas(["ab", "cd", "ef", "gh"]))
    assert counts(decision) == (4, 0, 2)
    assert (decision.hook, decision.channel, decision.output_index) == ("hook0", "content", 0)
    assert (decision.reason, decision.offset, decision.num_withheld) == (None, 0, 0)
    assert decision.held_seconds == 0.0


async def test_held_text_was_never_out_unjudged() -> None:  # contract 3.17
    hook = Judges(lambda c: emit(c.pending) if c.is_final else hold(min(3, len(c.pending))))
    (decision,) = await judged_by(hook, make_deltas(["ab", "cd", "ef"]))
    assert counts(decision) == (3, 0, 0)


async def test_a_stream_that_the_judge_was_not_asked_about_says_so() -> None:  # contract 3.17
    hook = Judges(lambda c: emit(c.pending, unjudged=None))
    (decision,) = await judged_by(hook, make_deltas(["ab", "cd"]))
    assert counts(decision) == (0, 2, 0)
    assert decision.reason == "not_asked"


async def test_a_judge_may_begin_late_and_stop_early() -> None:
    def answer(chunk: Chunk) -> Verdict:
        return emit(chunk.pending, unjudged=0 if chunk.text_diff == "c" else None)

    (decision,) = await judged_by(Judges(answer), make_deltas(list("abcde")))
    assert counts(decision) == (3, 2, 0)
    assert decision.reason == "not_asked"


class AsyncJudges(Judges):
    """Its chunks do not go the short way of plain hooks."""

    async def __call__(self, chunk: Chunk) -> Verdict:  # type: ignore[override]
        return super().__call__(chunk)


@pytest.mark.parametrize("unjudged", [*product([0, 1, None], repeat=3)], ids=str)
async def test_plain_and_async_hooks_have_the_same_counts(unjudged: tuple[int | None, ...]) -> None:
    said = dict(zip("abc", unjudged, strict=True))
    answer = lambda chunk: emit(chunk.pending, unjudged=said.get(chunk.text_diff[:1], 0))  # noqa: E731
    deltas = make_deltas(["ab", "bc", "cd"])
    (plain,), (by_async,) = [await judged_by(one, deltas) for one in (Judges(answer), AsyncJudges(answer))]
    assert (counts(plain), plain.reason) == (counts(by_async), by_async.reason)


async def test_a_stream_without_text_is_not_told() -> None:
    assert await judged_by(Judges(release_first(1)), [Delta(finish_reason="stop")]) == []


async def test_an_aborted_stream_tells_what_was_out_unjudged() -> None:  # contract 3.17
    told: list[Decision] = []
    pipeline = pipeline_of(Judges(release_first(2)))
    async with opened(pipeline, make_request(), listener=told.append) as guard:
        for delta in make_deltas(["a", "b", "c"], finish=False):
            await guard.feed(delta)
        await guard.close()
    (decision,) = [one for one in told if one.action == "judged"]
    assert counts(decision) == (1, 2, 2)
    assert decision.reason == "aborted"


async def test_a_stream_that_the_hook_ends_tells_it_after_the_decision() -> None:
    def answer(chunk: Chunk) -> Verdict:
        if chunk.text_diff == "c":
            return terminate("bad", text=" No more of this.", unjudged=1)
        return emit(chunk.pending, unjudged=len(chunk.text))

    told: list[Decision] = []
    released = await guard_all(
        pipeline_of(Judges(answer)), make_deltas(["a", "b", "c", "d"]), listener=told.append
    )
    assert text_of(released) == "ab No more of this."
    assert [one.action for one in told] == ["terminate", "judged"]
    assert counts(told[1]) == (1, 1, 2)


async def test_every_output_and_channel_is_a_stream_of_its_own() -> None:
    deltas = [
        Delta(text="a", index=1),
        Delta(text="bcdef"),
        Delta(text="c", channel="reasoning"),
        *[Delta(index=index, finish_reason="stop") for index in (0, 1)],
    ]
    told = await judged_by(Judges(release_first(1)), deltas, request=make_request(n=2))
    assert sorted((one.output_index, one.channel, one.num_judged) for one in told) == [
        (0, "content", 2),
        (0, "reasoning", 1),
        (1, "content", 1),
    ]


async def test_a_rewound_stream_tells_what_was_out_before() -> None:
    class Rewinds(Judges):
        may_rewind = True

    def answer(chunk: Chunk) -> Verdict:
        if chunk.text_diff == "x":
            return rewind("x", unjudged=len(chunk.text) - 1)
        return emit(chunk.pending, unjudged=0 if chunk.is_final else len(chunk.text))

    tell = {(): "ab", ("a",): "bc", ("a", "b"): "xy", ("a", "b", "y"): ("",)}
    told: list[Decision] = []
    teller = Teller(lambda said: list(tell[said]))
    released = await guard_all(pipeline_of(Rewinds(answer)), teller, can_rewind=True, listener=told.append)
    assert text_of(released) == "aby"
    assert [(one.action, *counts(one)) for one in told] == [
        ("rewind", 0, 0, 0),
        ("judged", 0, 2, 2),
        ("judged", 4, 0, 3),
    ]


BAD: list[Callable[[Chunk], Verdict]] = [
    lambda c: emit(c.pending, unjudged=-1),
    lambda c: emit(c.pending, unjudged=len(c.text) + 1),
    lambda c: emit(c.pending, unjudged=1.0),  # type: ignore[arg-type]
    lambda c: hold(0, unjudged=99),
    lambda c: suspect("x", unjudged=99),
    lambda c: redact([(0, 1, "")], unjudged=99),
    lambda c: terminate("x", unjudged=99),
]


@pytest.mark.parametrize("answer", BAD)
async def test_more_than_was_released_is_a_hook_error(answer: Any) -> None:  # contract 3.17
    with pytest.raises(HookError):
        await guard_all(pipeline_of(Judges(answer)), make_deltas(["a", "b"]))


async def test_a_stream_that_ends_unjudged_is_a_hook_error() -> None:  # contract 3.17
    hook = Judges(lambda c: emit(c.pending, unjudged=min(1, len(c.text))))
    with pytest.raises(HookError):
        await guard_all(pipeline_of(hook), make_deltas(["a", "b"]))


@pytest.mark.parametrize("unjudged", [None, 1])
@pytest.mark.parametrize("is_held", [False, True])
async def test_a_hook_that_does_not_judge_may_not_speak_of_it(unjudged: Any, is_held: bool) -> None:
    def answer(chunk: Chunk) -> Verdict:
        if is_held and not chunk.is_final:
            return hold(1, unjudged=unjudged)
        return emit(chunk.pending, unjudged=unjudged)

    with pytest.raises(HookError):
        await guard_all(pipeline_of(Script(answer)), make_deltas(["a", "b"]))


async def test_a_judge_in_shadow_mode_is_told_as_that() -> None:
    told: list[Decision] = []
    hook = LoadedHook.of("shadow", Judges(release_first(1)), is_shadow=True)
    await guard_all(Pipeline([hook]), make_deltas(["a", "b"]), listener=told.append)
    assert [(one.action, one.mode, one.num_judged) for one in told] == [("judged", "shadow", 2)]


async def test_streams_are_counted_by_the_most_that_was_out_unjudged() -> None:
    pipeline = pipeline_of(Judges(release_first(3)))
    await guard_all(pipeline, make_deltas(["a", "b", "c", "d"]))
    tally = pipeline.tallies["hook0"]
    assert (tally.unjudged, tally.num_unjudged) == ({3: 1}, 3)  # the bucket of 3 and 4 tokens


async def test_streams_that_were_not_asked_about_are_not_counted() -> None:
    pipeline = pipeline_of(Judges(lambda c: emit(c.pending, unjudged=None)))
    await guard_all(pipeline, make_deltas(["a"]))
    assert pipeline.tallies["hook0"].num_unjudged == 0
    assert not pipeline.tallies["hook0"].unjudged


async def test_an_async_hook_judges_as_well() -> None:
    class Asks:
        judges = True

        async def __call__(self, chunk: Chunk) -> Verdict:
            return release_first(2)(chunk)

    (decision,) = await judged_by(Asks(), make_deltas(["a", "b", "c"]))
    assert counts(decision) == (3, 0, 2)


async def test_text_withheld_is_neither_judged_nor_unjudged() -> None:
    hook = Judges(lambda c: suppress() if c.text_diff == "b" else emit(c.pending))
    (decision,) = await judged_by(hook, make_deltas(["a", "b", "c"]))
    assert counts(decision) == (2, 0, 0)


async def test_text_that_a_hook_before_wrote_counts_by_its_length() -> None:
    redacts = Script(lambda c: redact([(0, 1, "12345")]) if c.text_diff else emit(""))
    judges = Judges(lambda c: emit(c.pending))
    told: list[Decision] = []
    deltas = [Delta(text="ab", tokens=(make_token("a", 0), make_token("b", 1))), Delta(finish_reason="stop")]
    await guard_all(pipeline_of(redacts, judges), deltas, listener=told.append)
    assert [counts(one) for one in told if one.action == "judged"] == [(3, 0, 0)]
