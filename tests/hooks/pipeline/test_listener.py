"""The service listens to the hooks' decisions, wherever the hooks run (contract 8.14)."""

import contextlib
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from engine.protocol import Delta
from hooks import Chunk, Decision, Restored, Verdict, emit, hold, redact, refuse, rewind, suppress, terminate
from hooks.api.decision import Held
from hooks.decisions.failure import HookError
from hooks.loading.loader import LoadedHook
from hooks.pipeline.admission import RefusedError
from hooks.pipeline.driver import GuardDriver
from hooks.pipeline.pipeline import Pipeline
from hooks.testing.play import vetted
from tests.helpers import Script, Source, Teller, make_deltas, make_request, opened, pipeline_of

PIECES = ["well, ", "the se", "cret ", "is out"]


def raises(chunk: Chunk) -> Verdict:
    raise ValueError("the secret")


def holds_words(chunk: Chunk) -> Verdict:
    """Holds the last word, and redacts one."""
    text = chunk.pending
    if (at := text.find("secret")) >= 0:
        return redact([(at, at + 6, "[x]", "word")])
    if chunk.is_final:
        return emit(text)
    return hold(len(text) - text.rfind(" ") - 1)


HOOKS: dict[str, Callable[[Chunk], Any]] = {
    "redacts": holds_words,
    "suppresses": lambda c: suppress("hush") if "cret" in c.text_diff else emit(c.pending),
    "terminates": lambda c: terminate("stop", after=2) if "cret" in c.text_diff else emit(c.pending),
    "rewrites": lambda c: emit(c.pending.upper()),
    "holds to the end": lambda c: emit(c.pending) if c.is_final else hold(),
    "raises": lambda c: raises(c) if "cret" in c.text_diff else emit(c.pending),
    "returns nonsense": lambda c: 7 if "cret" in c.text_diff else emit(c.pending),
}


class Clerk:
    """A hook that listens."""

    def __init__(self) -> None:
        self.told: list[Decision] = []

    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending)

    def on_decision(self, decision: Decision) -> None:
        self.told.append(decision)


async def heard(pipeline: Pipeline, source: Source | Teller, **options: Any) -> list[Decision]:
    told: list[Decision] = []
    with contextlib.suppress(HookError, RefusedError):
        async with opened(pipeline, make_request(), listener=told.append, **options) as guard:
            async for _ in vetted(guard, source):
                pass
    return told


@pytest.mark.parametrize("name", HOOKS)
async def test_the_service_hears_what_a_hook_that_listens_hears(name: str) -> None:
    clerk = Clerk()
    told = await heard(pipeline_of(Script(HOOKS[name]), clerk), Source(make_deltas(PIECES)))
    assert told
    assert told == clerk.told


async def test_a_listener_hears_without_a_hook_that_listens() -> None:
    told = await heard(pipeline_of(Script(holds_words)), Source(make_deltas(PIECES)))
    assert [(one.action, one.reason, one.num_withheld) for one in told if one.action != "hold"] == [
        ("redact", "word", 6)
    ]


async def test_a_decision_is_told_before_what_follows_from_it_leaves() -> None:
    events: list[str] = []
    pipeline = pipeline_of(Script(holds_words))
    async with opened(pipeline, make_request(), listener=lambda one: events.append(one.action)) as guard:
        async for delta in vetted(guard, Source(make_deltas(PIECES))):
            events.append(delta.text)
    assert events.index("redact") + 1 == next(i for i, one in enumerate(events) if "[x]" in one)


@pytest.mark.parametrize("name", ["suppresses", "terminates", "raises", "returns nonsense", "leaves"])
async def test_no_decision_has_a_value_that_came_back(name: str) -> None:  # contract 3.18, 9.1
    restores = Script(lambda c: redact([Restored(0, 1, "alice", "NAME")] if c.text_diff else []))
    answer = HOOKS.get(name, lambda c: hold())
    told: list[Decision] = []
    async with opened(pipeline_of(restores, Script(answer)), make_request(), listener=told.append) as guard:
        with contextlib.suppress(HookError):
            await guard.feed(make_deltas(["@ cret"])[0])
        await guard.close()
    came_back, other = told
    assert (came_back.action, came_back.withheld) == ("restore", "")
    assert other.withheld == ("*" * 5 + " cret")[2 if name == "terminates" else 0 :]


async def test_what_becomes_of_a_prompt_is_heard() -> None:
    class Refuses:
        def __call__(self, chunk: Chunk) -> Verdict:
            return emit(chunk.pending)

        def on_request(self, request: Any) -> Any:
            return refuse("no")

    (told,) = await heard(pipeline_of(Refuses()), Source(make_deltas(PIECES)))
    assert (told.action, told.reason, told.channel, told.output_index) == ("refuse", "no", "prompt", None)


async def test_each_rewind_is_heard_once() -> None:
    class Rewinds:
        may_rewind = True

        def __call__(self, chunk: Chunk) -> Verdict:
            return rewind("again") if "bad" in chunk.text_diff else emit(chunk.pending)

    teller = Teller(lambda said: ["good ", ""] if len(said) > 1 else ["bad ", "good "])
    told = await heard(pipeline_of(Rewinds()), teller, can_rewind=True)
    assert [one.action for one in told].count("rewind") == 2


async def test_what_was_held_when_the_client_left_is_heard() -> None:
    told: list[Decision] = []
    pipeline = pipeline_of(Script(lambda c: emit(c.pending) if c.is_final else hold()))
    async with opened(pipeline, make_request(), listener=told.append) as guard:
        await guard.feed(make_deltas(["held"])[0])
        await guard.close()
        await guard.close()
    assert [(one.action, one.reason, one.num_withheld) for one in told] == [("hold", "aborted", 4)]


async def test_held_text_is_told_by_stream_and_hook() -> None:
    shadow = LoadedHook.of(
        "shadow", Script(lambda c: emit(c.pending) if c.is_final else hold()), is_shadow=True
    )
    holder = LoadedHook.of("words", Script(holds_words))
    states: list[list[Held]] = []
    pipeline = Pipeline([shadow, holder])
    async with opened(pipeline, make_request(n=2), listener=lambda _: None) as guard:
        deltas = [
            *make_deltas(["a long", " word"], finish=False),
            *make_deltas(["other"], index=1, finish=False),
        ]
        for delta in [*deltas, Delta(finish_reason="stop"), Delta(index=1, finish_reason="stop")]:
            await guard.feed(delta)
            states.append(list(guard.held()))
    assert states == [
        [Held(0, "content", "words", 4)],
        [Held(0, "content", "words", 4)],
        [Held(0, "content", "words", 4), Held(1, "content", "words", 5)],
        [Held(1, "content", "words", 5)],
        [],
    ]


async def test_without_a_listener_no_decision_is_made_and_no_text_counted() -> None:
    pipeline = Pipeline([LoadedHook.of("words", Script(holds_words))])
    guard = pipeline.open(make_request())
    assert isinstance(guard, GuardDriver)
    assert guard._log is None
    async for _ in vetted(guard, Source(make_deltas(PIECES))):
        pass
    tally = pipeline.tallies["words"]
    assert (tally.num_streams, tally.num_characters, tally.held.total()) == (1, 0, 0)


async def test_a_closed_guard_waits_for_no_garbage_collection() -> None:
    """It has the request's text."""
    guard = pipeline_of(Script(holds_words)).open(make_request(), listener=lambda _: None)
    assert isinstance(guard, GuardDriver)
    await guard.feed(make_deltas(PIECES)[0])
    await guard.close()
    gone = weakref.ref(guard)
    del guard
    assert gone() is None


@pytest.mark.parametrize("in_shadow", [False, True])
async def test_short_clean_holds_are_counted_and_need_not_be_told(in_shadow: bool) -> None:
    hooks = [LoadedHook.of("words", Script(holds_words), is_shadow=in_shadow)]
    pipeline, told = Pipeline(hooks), list[Decision]()
    async with opened(pipeline, make_request(), listener=told.append, min_held=600.0) as guard:
        async for _ in vetted(guard, Source(make_deltas(PIECES))):
            pass
    tally = pipeline.tallies["words"]
    assert [one.action for one in told] == ["redact"]
    assert tally.held.total() == 2  # the last word of two pieces
    assert (tally.num_streams, tally.num_characters) == (1, len("".join(PIECES)))


@pytest.mark.parametrize("in_shadow", [False, True])
async def test_a_hook_that_fails_as_a_listener_fails_the_request_unless_in_shadow(in_shadow: bool) -> None:
    """Contract 3.15, 8.10."""

    class Fails(Clerk):
        def on_decision(self, decision: Decision) -> None:
            raise ValueError

    fails = LoadedHook.of("fails", Fails(), is_shadow=in_shadow)
    pipeline = Pipeline([LoadedHook.of("words", Script(holds_words)), fails])
    async with opened(pipeline, make_request()) as guard:
        with contextlib.nullcontext() if in_shadow else pytest.raises(HookError):
            for delta in make_deltas(PIECES):
                await guard.feed(delta)
    assert pipeline.tallies["fails"].others["error"] == 1


async def test_a_hook_that_listens_hears_all_holds() -> None:
    clerk, told = Clerk(), list[Decision]()
    pipeline = pipeline_of(Script(holds_words), clerk)
    async with opened(pipeline, make_request(), listener=told.append, min_held=600.0) as guard:
        async for _ in vetted(guard, Source(make_deltas(PIECES))):
            pass
    assert "hold" in {one.action for one in clerk.told}
