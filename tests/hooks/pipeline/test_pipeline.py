"""The configured hooks: their self-test, and the hooks that a request may name (contract 1.3, 1.6)."""

import time
from pathlib import Path
from typing import Literal

import pytest

from engine.protocol import RequestError
from hooks import ProbeNeeds, emit, hold, suppress
from hooks.loading.loader import HookLoadError, HookSpec, LoadedHook
from hooks.pipeline.pipeline import Pipeline
from tests.helpers import Script, guard_all, make_deltas, make_request, pipeline_of, text_of, verdicts_of


def allowing(hook: Script, *mandatory: Script) -> Pipeline:
    return Pipeline(
        [LoadedHook(f"hook{i}", other, is_async=False) for i, other in enumerate(mandatory)],
        [LoadedHook("strict", hook, is_async=False)],
    )


async def test_the_self_test_finds_a_hook_that_cannot_finish_a_stream() -> None:  # contract 1.4, 1.6
    good, bad = Script(lambda c: emit(c.pending)), Script(lambda c: hold())
    pipeline = pipeline_of(good, bad)
    with pytest.raises(HookLoadError, match="hook 'hook1' failed its self-test: BadVerdictError: "):
        await pipeline.start()
    assert verdicts_of(pipeline) == {"hook0": {}, "hook1": {}}


async def test_the_self_test_finds_a_plain_hook_that_hangs(caplog: pytest.LogCaptureFixture) -> None:
    """Contract 1.4: in this process nothing else would. The error says it once."""
    pipeline = pipeline_of(Script(lambda c: time.sleep(60)), hook_timeout=0.05)
    with pytest.raises(HookLoadError, match=rf"TimeoutError: its deadline passed .{__file__}:\d+"):
        await pipeline.start()
    assert caplog.text == ""


@pytest.mark.parametrize("mode", ["enforce", "shadow"])
async def test_the_self_test_says_why_a_hook_failed(
    tmp_path: Path, mode: Literal["enforce", "shadow"]
) -> None:
    """Contract 1.4: the text of the self-test is nobody's."""
    file = tmp_path / "guard.py"
    file.write_text(
        "class Guard:\n"
        "    def __call__(self, chunk):\n"
        "        try:\n"
        "            {}['words']\n"
        "        except KeyError as error:\n"
        "            raise RuntimeError(f'no word in {chunk.text}') from error\n"
    )
    pipeline = await Pipeline.load([HookSpec(f"{file}:Guard", mode=mode)])
    with pytest.raises(HookLoadError) as caught:
        await pipeline.start()
    assert str(caught.value) == (
        f"hook '{file}:Guard' failed its self-test: RuntimeError: no word in Hello ({file}:6), "
        f"caused by KeyError: 'words' ({file}:4)"
    )


async def test_the_self_test_shows_scores_to_a_hook_that_needs_them() -> None:  # contract 1.6, 1.10
    class Reads(Script):
        needs_probe = ProbeNeeds(labels=("yes", "no"))

    reads, other = (kind(lambda c: emit(c.pending)) for kind in (Reads, Script))
    pipeline = pipeline_of(reads, other)
    assert pipeline.is_ready
    assert pipeline.needed_probes == {"hook0": Reads.needs_probe}
    await pipeline.start()
    for hook, scores in ((reads, [((0.0, 0.0),)] * 3), (other, [(None,)] * 3)):
        assert [chunk.scores_diff for chunk in hook.chunks if chunk.text_diff] == scores
    assert [chunk.prompt_scores for chunk in reads.chunks] == [((0.0, 0.0),)] * 4


async def test_a_request_may_add_a_hook_that_the_server_allows() -> None:  # contract 1.3
    upper = Script(lambda c: emit(c.pending.upper()))
    adds = Script(lambda c: emit(c.pending + "!") if c.text_diff else emit(""))
    pipeline = allowing(adds, upper)
    plain = await guard_all(pipeline, make_deltas(["a"]))
    added = await guard_all(pipeline, make_deltas(["a"]), make_request(hooks=("strict",)))
    assert (text_of(plain), text_of(added)) == ("A", "A!")


def test_a_request_may_name_no_other_hook() -> None:  # contract 1.3
    with pytest.raises(RequestError) as caught:
        allowing(Script(lambda c: suppress())).open(make_request(hooks=("os.system",)))
    assert caught.value.param == "hooks"


def test_the_guard_of_a_request_without_hooks_wants_nothing() -> None:  # contract 8.9
    guard = pipeline_of().open(make_request())
    wishes = ("may_rewind", "reads_prompts", "decides_prompts", "reads_media", "withholds_alternatives")
    assert not any(getattr(guard, wish) for wish in wishes)
