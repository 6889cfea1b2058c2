"""`suspect` releases the text and tells the later hooks (contract 3.16)."""

from typing import Any

import pytest

from engine.protocol import Delta, ToolCall
from hooks import Chunk, Verdict, emit, hold, suspect, terminate
from hooks.decisions.failure import HookError
from hooks.loading.loader import LoadedHook
from hooks.pipeline.pipeline import Pipeline
from tests.helpers import Script, guard_all, ids_of, make_deltas, make_request, pipeline_of, text_of


def passing(chunk: Chunk) -> Verdict:
    return emit(chunk.pending)


def suspects_b(chunk: Chunk) -> Verdict:
    return suspect("b") if "b" in chunk.pending else emit(chunk.pending)


class Remembers(Script):
    """Notes the suspicion at each call: an old chunk tells the newest."""

    def __init__(self, answer: Any = passing) -> None:
        super().__init__(answer)
        self.suspicions: list[tuple[str, str | None]] = []

    def __call__(self, chunk: Chunk) -> Verdict:
        self.suspicions.append((chunk.text_diff, chunk.suspicion))
        return super().__call__(chunk)


async def test_a_suspicion_releases_all_that_is_pending_untouched() -> None:  # contract 3.16
    deltas = make_deltas(["a", "b", "c"])
    hook = Script(lambda c: suspect("x") if c.is_final or c.text_diff == "c" else hold())
    released = await guard_all(pipeline_of(hook), deltas)
    assert (text_of(released), ids_of(released)) == ("abc", [0, 1, 2])


async def test_later_hooks_are_told_from_this_chunk_on() -> None:  # contract 3.16, 2.11
    before, later = Remembers(), Remembers()
    await guard_all(pipeline_of(before, Script(suspects_b), later), make_deltas(["a", "b", "c"]))
    assert before.suspicions == [("a", None), ("b", None), ("c", None), ("", None)]
    assert later.suspicions == [("a", None), ("b", "b"), ("c", "b"), ("", "b")]


async def test_a_suspicion_counts_on_every_output_and_channel() -> None:  # contract 3.16
    later = Remembers()
    call = ToolCall(0, "send")
    deltas = [
        Delta(text="a", index=1),
        Delta(text="b"),
        Delta(text="c", index=1),
        Delta(text="{}", channel="tool_call", tool_call=call),
    ]
    await guard_all(pipeline_of(Script(suspects_b), later), deltas, make_request(n=2))
    assert [one for one in later.suspicions if one[0]] == [("a", None), ("b", "b"), ("c", "b"), ("{}", "b")]


async def test_the_first_suspicion_of_the_first_hook_is_told() -> None:
    def suspects_c(chunk: Chunk) -> Verdict:
        return suspect("c") if chunk.text_diff == "c" else passing(chunk)

    def suspects_all(chunk: Chunk) -> Verdict:
        return suspect(chunk.text_diff)

    later = Remembers()
    await guard_all(pipeline_of(Script(suspects_c), Script(suspects_all), later), make_deltas(["a", "c"]))
    assert later.suspicions[:2] == [("a", "a"), ("c", "a")]


async def test_a_hook_in_shadow_mode_makes_nothing_suspect() -> None:  # contract 3.16, 3.10
    later = Remembers()
    shadow = LoadedHook.of("shadow", Script(suspects_b), is_shadow=True)
    await guard_all(Pipeline([shadow, LoadedHook.of("later", later)]), make_deltas(["b", "c"]))
    assert later.suspicions[0] == ("b", None)


async def test_a_later_hook_may_act_on_the_text_that_made_it_suspect() -> None:
    def judges(chunk: Chunk) -> Verdict:
        return terminate(chunk.suspicion) if chunk.suspicion else passing(chunk)

    released = await guard_all(pipeline_of(Script(suspects_b), Script(judges)), make_deltas(["a", "b", "c"]))
    assert text_of(released) == "a"


@pytest.mark.parametrize("reason", [None, 3, "\ud800"])
async def test_a_reason_that_is_no_text_fails_the_hook(reason: Any) -> None:
    with pytest.raises(HookError):
        await guard_all(pipeline_of(Script(lambda c: suspect(reason))), make_deltas(["a"]))


async def test_the_decision_says_where_and_why() -> None:
    pipeline = pipeline_of(Script(lambda c: suspect("x") if c.text_diff == "c" else hold(0)))
    told: list[Any] = []
    await guard_all(pipeline, make_deltas(["ab", "c", "d"]), listener=told.append)
    (decision,) = [one for one in told if one.action == "suspect"]
    assert (decision.reason, decision.offset, decision.num_withheld) == ("x", 2, 0)
    assert pipeline.tallies["hook0"].verdicts["suspect"] == 1
