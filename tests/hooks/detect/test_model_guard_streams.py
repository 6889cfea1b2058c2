"""Any stream, cut anywhere, with a judge that takes any time: nothing leaves that may not (contract 3.17)."""

import asyncio
import gc
import random
import weakref
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Delta, Deltas, Token, ToolCall
from hooks import Decision
from hooks.decisions.failure import HookError
from hooks.testing.play import vetted
from tests.helpers import Teller, guard_all, make_request, make_token, opened, pipeline_of, text_of
from tests.hooks.detect.judging import PatternGuard

Key = tuple[int, str]
"""Output and channel."""


@pytest.fixture(autouse=True)
def mode() -> str:
    return "a worker's channel changes nothing, and has a pace of its own"


class Paces:
    """Lets the judge and the engine take turns in any order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    async def wait(self) -> None:
        for _ in range(self.random.choice((0, 0, 1, 3, 9))):
            await asyncio.sleep(0)

    async def deltas(self, deltas: Sequence[Delta]) -> Deltas:
        for delta in deltas:
            await self.wait()
            yield delta


class Watched:
    """Runs a guard, and looks at what has left each time that something leaves."""

    def __init__(self, guard: PatternGuard, seed: int, *, num_outputs: int = 1) -> None:
        self.guard = guard
        self.paces = Paces(seed)
        guard.wait = self.paces.wait
        self.request = make_request(n=num_outputs)
        self.released: dict[Key, str] = defaultdict(str)
        self.told: list[Decision] = []

    def unjudged(self, key: Key) -> str:
        judged = max((one.num_judged for one in self.guard.judges_made if one.where == key), default=0)
        return self.released[key][judged:]

    async def run(self, deltas: Sequence[Delta]) -> AsyncGenerator[Key, None]:
        pipeline = pipeline_of(self.guard)
        async with (
            opened(pipeline, self.request, listener=self.told.append) as guard,
            aclosing(vetted(guard, lambda _: self.paces.deltas(deltas))) as released,
        ):
            async for delta in released:
                key = delta.index, delta.channel
                self.released[key] += delta.text
                yield key


TEXTS = st.text(alphabet="ab!xé世🎉 ", max_size=40)
SIZES = st.lists(st.integers(1, 6), max_size=40)
SEEDS = st.integers(0, 999)
WINDOWS = st.sampled_from([1, 2, 5, 16])
CHANNELS: tuple[Any, ...] = ("content", "reasoning", "tool_call")


def tokens_of(text: str) -> list[Token]:
    """A token for each byte: a character is complete with its last one (contract 2.4)."""
    found = []
    for i, character in enumerate(text):
        *first, last = [bytes([byte]) for byte in character.encode()]
        found += [Token(j, "", raw) for j, raw in enumerate(first)]
        found.append(make_token(character, 100 + i, raw=last))
    return found


def cut(text: str, sizes: Sequence[int], *, index: int = 0, channel: Any = "content") -> list[Delta]:
    """The text's tokens in deltas of these sizes, which may end within a character."""
    tokens, deltas = tokens_of(text), []
    call = ToolCall(0, "send") if channel == "tool_call" else None
    for size in [*sizes, len(tokens)]:
        taken, tokens = tokens[:size], tokens[size:]
        if taken:
            said = "".join(token.text for token in taken)
            deltas.append(Delta(index=index, text=said, tokens=tuple(taken), channel=channel, tool_call=call))
    return deltas


@given(TEXTS, SIZES, SEEDS, WINDOWS, st.integers(0, 3), st.sampled_from(["stop", "length"]))
def test_in_mode_hold_nothing_leaves_that_no_verdict_covers(  # contract 3.17
    text: str, sizes: list[int], seed: int, window: int, num_undecided: int, end: Any
) -> None:
    async def run() -> None:
        guard = PatternGuard("!", window=window, num_undecided=num_undecided)
        watched = Watched(guard, seed)
        stop = "END" if end == "stop" else None  # at a stop string, whose text was never shown
        async for key in watched.run([*cut(text, sizes), Delta(finish_reason=end, stop_reason=stop)]):
            assert watched.unjudged(key) == ""
        assert watched.released[0, "content"] == text.partition("!")[0]
        assert {one.max_unjudged for one in watched.told} <= {0}

    asyncio.run(run())


@given(TEXTS, SIZES, SEEDS, WINDOWS, st.integers(0, 3))
def test_in_mode_release_a_bounded_part_is_out_unjudged(  # contract 3.17
    text: str, sizes: list[int], seed: int, window: int, num_undecided: int
) -> None:
    async def run() -> None:
        guard = PatternGuard("!", mode="release", window=window, num_undecided=num_undecided)
        watched = Watched(guard, seed)
        most = 0
        async for key in watched.run([*cut(text, sizes), Delta(finish_reason="stop")]):
            # Each character is a token or several, so these are at least as many tokens.
            most = max(most, len(watched.unjudged(key)))
            assert most <= window + num_undecided
        said = watched.released[0, "content"]
        clean, offence, _ = text.partition("!")
        assert said.startswith(clean)
        assert text.startswith(said)
        assert offence or said == text
        judged = [one for one in watched.told if one.action == "judged"]
        assert all(most <= one.max_unjudged <= window + num_undecided for one in judged)
        assert len(judged) == bool(said)

    asyncio.run(run())


@given(TEXTS, SIZES, SEEDS, st.data())
def test_a_client_that_leaves_ends_every_judgement(
    text: str, sizes: list[int], seed: int, data: st.DataObject
) -> None:
    async def run() -> None:
        guard = PatternGuard("!", mode=data.draw(st.sampled_from(["hold", "release"])), window=3)
        watched = Watched(guard, seed)
        num_wanted = data.draw(st.integers(0, 5))
        running = watched.run(cut(text, sizes))
        async for _ in running:
            if (num_wanted := num_wanted - 1) <= 0:
                break
        await running.aclose()
        await guard.close()
        assert all(one.is_closed and not one.is_running for one in guard.judges_made)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())


@given(TEXTS.filter(bool), SIZES, SEEDS, WINDOWS, st.integers(1, 4), st.sampled_from(["hold", "release"]))
def test_a_judge_that_fails_at_any_question_closes_the_request(
    text: str, sizes: list[int], seed: int, window: int, num_answers: int, mode: Any
) -> None:
    class FailsError(Exception):
        pass

    async def run() -> None:
        guard = PatternGuard("nothing", mode=mode, window=window)
        watched = Watched(guard, seed)
        left = num_answers

        async def wait() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise FailsError
            await watched.paces.wait()

        guard.wait = wait
        try:
            async for key in watched.run([*cut(text, sizes), Delta(finish_reason="stop")]):
                assert len(watched.unjudged(key)) <= (0 if mode == "hold" else window)
        except HookError:
            assert left < 0
        else:
            assert left >= 0
            assert watched.released[0, "content"] == text
        await guard.close()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())


@given(st.lists(st.tuples(TEXTS, SIZES), min_size=6, max_size=6), SEEDS, WINDOWS)
def test_outputs_channels_and_calls_are_judged_each_by_itself(
    texts: list[tuple[str, list[int]]], seed: int, window: int
) -> None:
    async def run() -> None:
        guard = PatternGuard("!", window=window, action="suppress")
        watched = Watched(guard, seed, num_outputs=2)
        keys = [(index, channel) for index in (0, 1) for channel in CHANNELS]
        waiting = [
            cut(text.replace("!", "?"), sizes, index=index, channel=channel)
            for (index, channel), (text, sizes) in zip(keys, texts, strict=True)
        ]
        deltas = []
        while waiting := [one for one in waiting if one]:
            deltas.append(watched.paces.random.choice(waiting).pop(0))
        ends = [Delta(index=index, finish_reason="stop") for index in (0, 1)]
        async for key in watched.run([*deltas, *ends]):
            assert watched.unjudged(key) == ""
        for key, (text, _) in zip(keys, texts, strict=True):
            assert watched.released[key] == text.replace("!", "?")

    asyncio.run(run())


@given(st.lists(st.sampled_from("abc!"), max_size=24), st.integers(1, 4), WINDOWS, SEEDS)
@pytest.mark.parametrize("guard_mode", ["hold", "release"])
def test_a_rewound_stream_is_said_otherwise_from_before_the_offence(
    guard_mode: Any, words: list[str], size: int, window: int, seed: int
) -> None:
    async def run() -> None:
        guard = PatternGuard("!", mode=guard_mode, window=window, action="rewind")
        guard.wait = Paces(seed).wait
        text = [*words, ""]

        def tell(said: tuple[str, ...]) -> list[str]:
            return [text[len(said)], "o", ""]

        teller = Teller(tell, sizes=[size] * 24)
        released = text_of(await guard_all(pipeline_of(guard, max_rewinds=99), teller, can_rewind=True))
        if guard_mode == "hold" or "!" not in released:
            assert released == "".join(words).replace("!", "o")
        assert all(one.is_closed for one in guard.judges_made)

    asyncio.run(run())


@pytest.mark.parametrize("window", [1, 4, 16])
async def test_the_first_text_waits_for_one_token_alone(window: int) -> None:
    guard = PatternGuard("!", window=window)
    watched = Watched(guard, 0)
    async for key in watched.run(cut("abcdefghijklmnopqrstuvwxyz", [1] * 26)):
        assert (len(guard.judges_made[0].asked), watched.released[key]) == (1, "a")
        break


def test_what_a_request_asks_is_not_shared_by_judges() -> None:
    """A guard opens a judge for each stream, and only for streams with text that it judges."""

    async def run() -> None:
        guard = PatternGuard("!", channels=["content"])
        deltas = [
            *cut("ab", [1], index=1),
            *cut("c", [], channel="reasoning"),
            *[Delta(index=index, finish_reason="stop") for index in (0, 1)],
        ]
        await guard_all(pipeline_of(guard), deltas, make_request(n=2))
        assert [one.where for one in guard.judges_made] == [(1, "content")]

    asyncio.run(run())


class Mark:
    """Stands in a stream's state."""


@pytest.mark.parametrize("guard_mode", ["hold", "release"])
@pytest.mark.parametrize("text", ["", "abcdefgh", "abc!"])
async def test_a_judge_is_freed_with_its_request(guard_mode: Any, text: str) -> None:
    guard = PatternGuard("!", mode=guard_mode, window=2)
    guard.wait = Paces(0).wait
    marks: list[weakref.ref[Any]] = []
    ask = guard._begun_judging

    def begin(*args: Any) -> Any:
        chunk, _ = args
        chunk.state["mark"] = mark = Mark()
        marks.append(weakref.ref(mark))
        return ask(*args)

    guard._begun_judging = begin  # type: ignore[assignment,method-assign]
    gc.disable()
    try:
        await guard_all(pipeline_of(guard), [*cut(text, [1] * 9), Delta(finish_reason="stop")])
        guard.judges_made.clear()
        await guard.close()
        await asyncio.sleep(0)
        assert marks
        assert [one for one in marks if one() is not None] == []
    finally:
        gc.enable()
