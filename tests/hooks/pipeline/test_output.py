"""Exactly one last call for each stream, always (contract 2.6)."""

import asyncio
import contextlib
import gc
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from engine.protocol import Delta, Deltas, EngineError, FinishReason, GenerationRequest, ToolCall
from hooks import Chunk, Decision, Verdict, emit, hold, suppress, terminate
from hooks.decisions.failure import HookError
from hooks.loading.loader import LoadedHook
from hooks.pipeline.pipeline import Pipeline
from hooks.testing.play import vetted
from tests import helpers
from tests.helpers import Script, Source, guard_all, make_deltas, make_request, opened, pipeline_of, text_of


def passing(chunk: Chunk) -> Verdict:
    return emit(chunk.pending)


def finals(hook: Script) -> list[tuple[int, str, bool]]:
    return sorted((c.output_index, c.channel, c.aborted) for c in hook.finals)


async def test_every_stream_has_one_final_chunk_and_it_is_the_last() -> None:
    hook = Script(passing)
    deltas = [
        Delta(text="why", channel="reasoning"),
        Delta(text="so"),
        Delta(text="{}", channel="tool_call", tool_call=ToolCall(0, "f")),
        Delta(text="{}", channel="tool_call", tool_call=ToolCall(1, "g")),
        Delta(text="more"),
        Delta(finish_reason="stop"),
    ]
    await guard_all(pipeline_of(hook), deltas)
    assert finals(hook) == [
        (0, "content", False),
        (0, "reasoning", False),
        (0, "tool_call", False),
        (0, "tool_call", False),
    ]
    content = [c for c in hook.chunks if c.channel == "content"]
    assert [c.text for c in content] == ["so", "somore", "somore"]
    assert [c.is_final for c in content] == [False, False, True]


async def test_the_final_chunk_may_carry_text() -> None:
    hook = Script(passing)
    await guard_all(pipeline_of(hook), [Delta(text="all", finish_reason="length")])
    assert [(c.text_diff, c.is_final) for c in hook.chunks] == [("all", True)]


async def test_the_echo_ends_before_the_content_begins() -> None:
    hook = Script(passing)
    await guard_all(pipeline_of(hook), [Delta(text="p", channel="echo"), *make_deltas(["a"])])
    assert [(c.channel, c.is_final) for c in hook.chunks] == [
        ("echo", False),
        ("echo", True),
        ("content", False),
        ("content", True),
    ]


async def test_text_held_to_the_end_is_decided_there() -> None:
    hook = Script(lambda c: emit(c.pending) if c.is_final else hold())
    released = await guard_all(pipeline_of(hook), make_deltas(["a", "b", "c"]))
    assert [d.text for d in released if d.text] == ["abc"]
    assert hook.finals[0].pending == "abc"


async def test_hooks_before_and_after_one_that_terminates_get_their_last_call() -> None:
    before, after = Script(passing), Script(passing)
    ends = Script(lambda c: terminate("x") if "b" in c.text else emit(c.pending))
    await guard_all(pipeline_of(before, ends, after), make_deltas(["a", "b", "c"]))
    assert finals(before) == finals(after) == [(0, "content", True)]
    assert finals(ends) == []  # the one exception: it has ended the stream itself


async def test_siblings_of_a_terminated_output_get_their_last_call() -> None:
    hook = Script(lambda c: terminate("x") if c.output_index == 1 else emit(c.pending))
    deltas = [*make_deltas(["a"], finish=False), *make_deltas(["b"], index=1)]
    await guard_all(pipeline_of(hook), deltas, make_request(n=2))
    assert finals(hook) == [(0, "content", True)]


async def test_the_other_hooks_get_their_last_call_if_one_raises() -> None:
    before, after = Script(passing), Script(passing)
    fails = Script(lambda c: 1 / 0 if "b" in c.text else emit(c.pending))
    with pytest.raises(HookError):
        await guard_all(pipeline_of(before, fails, after), make_deltas(["a", "b", "c"]))
    assert finals(before) == finals(after) == [(0, "content", True)]
    assert finals(fails) == []


async def passing_later(chunk: Chunk) -> Verdict:
    return emit(chunk.pending)


class Told(Script):
    """Remembers the decisions, too."""

    def __init__(self, answer: Callable[[Chunk], Any]) -> None:
        super().__init__(answer)
        self.decisions: list[str] = []

    def on_decision(self, decision: Decision) -> None:
        self.decisions.append(decision.action)


@pytest.mark.parametrize("bad", [lambda c: None, lambda c: hold(99), passing_later])
@pytest.mark.parametrize("is_shadow", [False, True])
async def test_a_hook_whose_verdict_is_refused_gets_its_last_call(  # contract 2.6
    bad: Callable[[Chunk], Any], is_shadow: bool
) -> None:
    hook = Told(lambda c: bad(c) if "b" in c.text else emit(c.pending))
    pipeline = Pipeline([LoadedHook.of("bad", hook, is_shadow=is_shadow)])
    with contextlib.nullcontext() if is_shadow else pytest.raises(HookError):
        await guard_all(pipeline, make_deltas(["a", "b", "c"]))
    assert finals(hook) == [(0, "content", True)]
    assert [c.text_diff for c in hook.chunks] == ["a", "b", ""]
    assert hook.decisions == ["error"]


async def test_a_hook_in_shadow_mode_gets_its_last_call_when_each_stream_ends() -> None:  # contract 2.6
    hook = Script(lambda c: None)
    reasons: tuple[FinishReason | None, ...] = (None, None, "tool_calls")
    calls = [
        Delta(text="{}", channel="tool_call", tool_call=ToolCall(i, "f"), finish_reason=reason)
        for i, reason in enumerate(reasons)
    ]
    await guard_all(Pipeline([LoadedHook.of("bad", hook, is_shadow=True)]), calls)
    assert [c.aborted for c in hook.chunks] == [False, True, False, True, False]
    assert [c.is_final for c in hook.chunks] == [False, True, False, True, True]


@pytest.mark.parametrize("ends_in_call", [True, False])
async def test_a_withheld_call_ends_before_the_content_wherever_the_output_ends(ends_in_call: bool) -> None:
    """Contract 2.14."""
    hook = Script(lambda c: emit(c.pending + "!") if c.channel == "content" and c.is_final else suppress())
    call: dict[str, Any] = {"channel": "tool_call", "tool_call": ToolCall(0, "f")}
    end = Delta(finish_reason="tool_calls", **(call if ends_in_call else {}))
    deltas = await guard_all(Pipeline([LoadedHook.of("h", hook)]), [Delta(text="{}", **call), end])
    assert [c.channel for c in hook.finals] == ["tool_call", "content"]
    assert (text_of(deltas, "tool_call"), text_of(deltas)) == ("", "!")


async def test_an_engine_failure_gives_every_stream_its_last_call() -> None:
    hook = Script(passing)
    source = Source(make_deltas(["a"], finish=False), EngineError("gone"))
    with pytest.raises(EngineError):
        await guard_all(pipeline_of(hook), source)
    assert finals(hook) == [(0, "content", True)]


async def test_a_client_that_leaves_gives_every_stream_its_last_call() -> None:
    hook = Script(lambda c: hold() if not c.aborted else emit("late"))
    source = Source(make_deltas(["a", "b", "c"], finish=False))

    async def never_ends(request: GenerationRequest) -> Deltas:
        async with aclosing(source(request)) as deltas:
            async for delta in deltas:
                yield delta
            await asyncio.Event().wait()

    released: list[Delta] = []

    async def client() -> None:
        async with opened(pipeline_of(hook), make_request()) as guard:
            async with aclosing(vetted(guard, never_ends)) as deltas:
                released.extend([delta async for delta in deltas])

    task = asyncio.get_running_loop().create_task(client())
    while len(hook.chunks) < 3:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert finals(hook) == [(0, "content", True)]
    assert released == []


async def test_a_reader_that_stops_early_gives_every_stream_its_last_call() -> None:
    hook = Script(passing)
    source = Source(make_deltas(["a", "b", "c"]))
    async with opened(pipeline_of(hook), make_request()) as guard:
        async with aclosing(vetted(guard, source)) as deltas:
            async for _ in deltas:
                break
    assert finals(hook) == [(0, "content", True)]
    assert source.closed_early


async def test_the_verdict_of_an_aborted_chunk_is_ignored() -> None:
    hook = Script(lambda c: 1 / 0 if c.aborted else emit(c.pending))
    ends = Script(lambda c: terminate("x") if "b" in c.text else emit(c.pending))
    released = await guard_all(pipeline_of(hook, ends), make_deltas(["a", "b"]))
    assert text_of(released) == "a"


async def test_state_is_one_hooks_own_for_one_stream() -> None:  # contract 2.2, 2.3
    def count(chunk: Chunk) -> Verdict:
        chunk.state["n"] = chunk.state.get("n", 0) + 1
        return emit(chunk.pending)

    first, second = Script(count), Script(count)
    deltas = [
        *make_deltas(["a", "b"], finish=False),
        Delta(text="t", channel="reasoning"),
        *make_deltas(["c"], index=1),
        Delta(finish_reason="stop"),
    ]
    await guard_all(pipeline_of(first, second), deltas, make_request(n=2))
    for hook in (first, second):
        states = {(c.output_index, c.channel): c.state["n"] for c in hook.chunks}
        assert states == {(0, "content"): 3, (0, "reasoning"): 2, (1, "content"): 2}


async def test_being_cancelled_twice_loses_no_last_call() -> None:
    ended: list[int] = []

    class Lingers:
        async def __call__(self, chunk: Chunk) -> Verdict:
            if chunk.aborted:
                ended.append(chunk.output_index)
                await asyncio.sleep(0.01)
            return emit(chunk.pending)

    guard = pipeline_of(Lingers()).open(make_request(n=3))
    for i in range(3):
        await guard.feed(Delta(text="a", index=i))
    task = asyncio.get_running_loop().create_task(guard.close())
    while not ended:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [0, 1, 2]


async def test_siblings_end_too_when_a_hook_raises() -> None:  # contract 4.1
    hook = Script(lambda c: 1 / 0 if c.output_index == 1 else emit(c.pending))
    source = Source([*make_deltas("a", finish=False), *make_deltas("b", index=1), *make_deltas("c")])
    with pytest.raises(HookError):
        await guard_all(pipeline_of(hook), source, make_request(n=2))
    assert finals(hook) == [(0, "content", True)]
    assert (source.taken, source.closed_early) == (2, True)


async def test_no_state_is_left_of_ten_thousand_requests_of_every_ending() -> None:
    """A hook's state for a stream is dropped with the stream."""
    left: list[weakref.ref[Any]] = []

    class Mark:
        pass

    def answer(chunk: Chunk) -> Verdict:
        if "mark" not in chunk.state:
            chunk.state["mark"] = mark = Mark()
            left.append(weakref.ref(mark))
        ending = chunk.request.metadata["ending"]
        if ending == "hold":
            return emit(chunk.pending) if chunk.is_final else hold()
        if "b" in chunk.text_diff and ending == "raise":
            raise RuntimeError
        return terminate("x") if "b" in chunk.text_diff and ending == "terminate" else emit(chunk.pending)

    pipeline = pipeline_of(Script(answer))
    hook: Any = pipeline.hooks[0].call
    hook.chunks = deque(maxlen=1)
    endings = ("plain", "hold", "raise", "terminate", "leave", "engine")
    for i in range(10_000 if helpers.mode == "in-process" else 300):
        ending = endings[i % len(endings)]
        request = make_request(metadata={"ending": ending})
        error = EngineError("gone") if ending == "engine" else None
        source = Source(make_deltas("abc", finish=ending != "engine"), error)
        with contextlib.suppress(HookError, EngineError):
            async with opened(pipeline, request) as guard, aclosing(vetted(guard, source)) as released:
                async for _ in released:
                    if ending == "leave":
                        break
    hook.chunks.clear()
    del guard, released
    gc.collect()
    assert len(left) >= 200
    assert [ref for ref in left if ref() is not None] == []
