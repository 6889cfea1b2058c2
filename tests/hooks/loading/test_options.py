"""Settings of a server: shadow mode, kept tokens, which usage is counted (contract 3.6, 3.10, 6.1)."""

import time

import pytest

from engine.protocol import Delta, Usage
from hooks import Chunk, Verdict, emit, hold, redact, suppress, terminate
from hooks.loading.loader import HookLoadError, LoadedHook
from hooks.loading.options import PipelineOptions
from hooks.pipeline.pipeline import Pipeline
from tests.helpers import (
    Script,
    finish_of,
    guard_all,
    ids_of,
    make_deltas,
    make_token,
    pipeline_of,
    text_of,
    verdicts_of,
)


def shadowed(hook: Script, *others: Script) -> Pipeline:
    return Pipeline(
        [
            LoadedHook("shadow", hook, is_async=False, is_shadow=True),
            *(LoadedHook(f"hook{i}", other, is_async=False) for i, other in enumerate(others)),
        ]
    )


@pytest.mark.parametrize(
    "verdict", [suppress(), emit("x"), terminate("x"), redact([(0, 1, "#")]), None], ids=repr
)
async def test_a_shadow_hook_has_no_effect_and_is_counted(verdict: Verdict) -> None:  # contract 3.10
    deltas = make_deltas(["ab", "cd"])
    pipeline = shadowed(Script(lambda c: verdict if c.text_diff else emit(c.pending)))
    assert await guard_all(pipeline, deltas) == deltas
    assert sum(verdicts_of(pipeline)["shadow"].values()) - verdicts_of(pipeline)["shadow"]["emit"] >= 1


async def test_a_shadow_hook_sees_what_it_would_hold() -> None:  # contract 3.10, 3.15
    hook = Script(lambda c: emit(c.pending) if c.is_final else hold())
    deltas = make_deltas(["ab", "cd"])
    assert await guard_all(shadowed(hook, Script(lambda c: emit(c.pending))), deltas) == deltas
    assert [c.pending for c in hook.chunks] == ["ab", "abcd", "abcd"]


async def test_a_running_server_does_not_enforce_what_a_hook_says_that_it_holds() -> None:  # contract 3.14
    hook = Script(lambda c: emit(c.pending) if c.is_final else hold())
    hook.max_hold = 0  # type: ignore[attr-defined]
    assert text_of(await guard_all(pipeline_of(hook), make_deltas(["ab", "cd"]))) == "abcd"


async def test_a_shadow_hook_that_fails_fails_nothing_but_its_self_test() -> None:  # contract 1.6, 3.15
    pipeline = shadowed(Script(lambda c: 1 / 0))
    deltas = make_deltas(["a"])
    assert await guard_all(pipeline, deltas) == deltas
    assert verdicts_of(pipeline)["shadow"] == {"error": 1}
    with pytest.raises(HookLoadError, match="hook 'shadow' failed its self-test: ZeroDivisionError"):
        await pipeline.start()


async def test_rewritten_tokens_can_be_kept_as_tensorrt_llm_does() -> None:  # contract 3.6
    upper = Script(lambda c: emit(c.pending.upper()))
    released = await guard_all(pipeline_of(upper, rewritten_tokens="keep"), make_deltas(["ab", "cd"]))
    assert (text_of(released), ids_of(released)) == ("ABCD", [0, 1])


async def test_a_kept_tokens_text_is_what_was_released_for_it() -> None:  # contract 3.6, 3.7
    def guard(chunk: Chunk) -> Verdict:
        return redact([(1, 4, "#"), (5, 5, "+")]) if chunk.is_final else hold()

    released = await guard_all(
        pipeline_of(Script(guard), rewritten_tokens="keep"), make_deltas(["ab", "cd", "ef", "gh"])
    )
    assert text_of(released) == "a#e+fgh"
    assert [(t.id, t.text) for d in released for t in d.tokens] == [(0, "a"), (1, "#"), (2, "e+f"), (3, "gh")]


async def test_a_shadow_hook_does_not_keep_a_stop_reason_back() -> None:  # contract 3.10
    deltas = [Delta(text="a"), Delta(finish_reason="stop", stop_reason="END")]
    assert await guard_all(shadowed(Script(lambda c: suppress())), deltas) == deltas


async def test_withheld_tokens_are_never_kept() -> None:  # contract 3.2, 3.3
    def guard(chunk: Chunk) -> Verdict:
        if "b" in chunk.text_diff:
            return suppress()
        return terminate("x") if "d" in chunk.text_diff else redact([(0, 1, "#")])

    released = await guard_all(pipeline_of(Script(guard), rewritten_tokens="keep"), make_deltas("abcd"))
    assert (text_of(released), ids_of(released)) == ("##", [0, 2])
    assert finish_of(released) == ("content_filter", "x")


async def test_usage_can_count_what_was_released() -> None:  # contract 6.1
    deltas = [d if d.finish_reason else Delta(text=d.text, tokens=d.tokens) for d in make_deltas("abcd")]
    deltas[-1] = Delta(finish_reason="stop", usage=Usage(7, 4))
    hook = Script(lambda c: suppress() if c.text_diff in ("b", "c") else emit(c.pending))
    released = await guard_all(pipeline_of(hook, usage="released"), deltas)
    assert released[-1].usage == Usage(7, 2)


async def test_a_shadow_hook_past_its_deadline_makes_no_other_late() -> None:  # contract 3.10
    def late(chunk: Chunk) -> Verdict:
        time.sleep(1.1)
        raise TimeoutError

    pipeline = shadowed(Script(late), Script(lambda c: emit(c.pending)))
    pipeline.options = PipelineOptions(hook_timeout=1.0)  # long enough for the other one on any machine
    deltas = make_deltas(["a", "b"])
    assert await guard_all(pipeline, deltas) == deltas


async def test_reasoning_that_was_withheld_is_not_counted_as_released() -> None:  # contract 6.1
    deltas = [
        Delta(text="why", tokens=(make_token("why", 1),), channel="reasoning"),
        Delta(text="so", tokens=(make_token("so", 2),)),
        Delta(finish_reason="stop", usage=Usage(7, 2, 0, 1)),
    ]
    hook = Script(lambda c: suppress() if c.channel == "reasoning" else emit(c.pending))
    released = await guard_all(pipeline_of(hook, usage="released"), deltas)
    assert released[-1].usage == Usage(7, 1, 0, 0)
