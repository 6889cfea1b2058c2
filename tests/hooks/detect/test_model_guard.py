"""Guards that are models: nothing leaves unjudged in mode `hold`, and a bounded part in mode `release`."""

import asyncio
import json
import re
from typing import Any

import pytest

from engine.protocol import Delta
from hooks import Chunk, Verdict, emit, hold, suspect
from hooks.decisions.failure import HookError
from hooks.detect.coverage import Judged, JudgeError
from hooks.detect.coverage_guard import ReadStream
from hooks.loading.loader import HookSpec
from hooks.testing import play, stream_of
from hooks.testing.check import check
from hooks.testing.fuzzing.fuzz import Example, Fuzzer
from tests.helpers import guard_all, make_deltas, make_request, pipeline_of
from tests.hooks.builtin.streams import run, said
from tests.hooks.detect.judging import PatternGuard, PatternJudge
from tests.serving import ROOT


@pytest.fixture(autouse=True)
def mode() -> str:
    return "both, as each test says"


def asked_by(guard: PatternGuard) -> list[str]:
    (judge,) = guard.judges_made
    return [text for text, _ in judge.asked]


def test_each_judgement_is_asked_about_the_new_text_alone() -> None:
    guard = PatternGuard(window=4)
    assert said(guard, list("0123456789abcdef")) == "0123456789abcdef"
    assert asked_by(guard) == ["0", "12", "3456", "789a", "bcde", "f"]


def test_the_end_of_a_stream_is_judged_at_once() -> None:
    guard = PatternGuard(window=16, first_window=16)
    assert said(guard, ["Yes", "."]) == "Yes."
    assert guard.judges_made[0].asked == [("Yes.", True)]


def test_nothing_is_released_that_is_not_judged() -> None:
    guard = PatternGuard(window=4, first_window=4)
    judgements = play(guard, list("0123456789")).judgements
    assert [(one.end, one.num_held) for one in judgements] == [
        *[(1, 1), (2, 2), (3, 3), (4, 0)],
        *[(5, 1), (6, 2), (7, 3), (8, 0)],
        *[(9, 1), (10, 2), (10, 0)],
    ]


def test_text_that_the_judge_needs_to_see_more_of_is_held() -> None:
    guard = PatternGuard(window=1, num_undecided=2)
    judgements = play(guard, list("abcd")).judgements
    assert [one.num_held for one in judgements] == [1, 2, 2, 2, 0]


@pytest.mark.parametrize(
    ("action", "wanted"),
    [("terminate", "fine "), ("suppress", "fine  yes"), ("redact", "fine [found] yes"), ("rewind", "fine ")],
)
def test_text_before_the_offence_leaves_untouched(action: Any, wanted: str) -> None:
    guard = PatternGuard("bad", window=8, first_window=8, action=action)
    assert said(guard, list("fine bad yes")) == wanted


class OpenJudge(PatternJudge):
    """Says at the end where "bad" may begin."""

    async def judge(self, text: str, is_final: bool) -> Judged:
        judged = await super().judge(text, is_final)
        begun = re.search("ba?$", self.text) if is_final else None
        return judged._replace(open_from=begun and begun.start())


class OpenGuard(PatternGuard):
    def open_judge(self, chunk: Chunk) -> PatternJudge:
        return OpenJudge(self.pattern, self.wait, self.num_undecided)


@pytest.mark.parametrize(("is_cut", "released"), [(True, "fine "), (False, "fine ba")])
def test_text_that_may_begin_an_offence_is_withheld_at_a_cut(is_cut: bool, released: str) -> None:
    """Contract 3.12."""
    guard = OpenGuard("bad", window=16, first_window=16)
    assert play(guard, stream_of("fine ba", is_cut=is_cut)).content == released


def test_an_offence_in_an_argument_leaves_the_arguments_json() -> None:
    guard = PatternGuard("bad", window=8, action="redact")
    released = said(guard, list(json.dumps({"a": "so bad ä"})), "tool_call")
    assert json.loads(released) == {"a": "so [found] ä"}


def test_a_tool_that_the_request_does_not_know_is_judged_by_its_name() -> None:
    guard = PatternGuard("send", window=4)
    assert said(guard, ["{}"], "tool_call") == ""


def test_a_channel_that_it_does_not_judge_passes() -> None:
    guard = PatternGuard("!", channels=["content"])
    assert said(guard, ["a!"], "reasoning") == "a!"
    assert guard.judges_made == []


def test_a_prompt_is_refused() -> None:
    guard = PatternGuard("!", prompt="refuse", text="No.")
    assert play(guard, stream_of("ok", prompt="a!")).refused == "found"
    assert play(guard, stream_of("ok", prompt="a")).content == "ok"


def test_a_prompt_that_takes_too_long_fails_the_request() -> None:
    class Slow(PatternGuard):
        async def judge_prompt(self, request: Any) -> None:
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        play(Slow(prompt="refuse", timeout=0.01), stream_of("ok", prompt="a"))


async def never() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("mode", ["hold", "release"])
def test_a_judge_that_hangs_fails_the_request_closed(mode: Any) -> None:
    guard = PatternGuard(mode=mode, window=2, timeout=0.01, wait=never)
    with pytest.raises(HookError):
        run(guard, list("abcdef"))
    assert guard.judges_made[0].is_closed


@pytest.mark.parametrize("mode", ["hold", "release"])
def test_a_judge_that_raises_fails_the_request_closed(mode: Any) -> None:
    async def fail() -> None:
        raise RuntimeError("no")

    guard = PatternGuard(mode=mode, window=2, wait=fail)
    with pytest.raises(RuntimeError, match="no"):
        play(guard, list("abcdef"))
    assert guard.judges_made[0].is_closed


@pytest.mark.parametrize("mode", ["hold", "release"])
@pytest.mark.parametrize("answer", [Judged(99), Judged(0), None, (float("nan"), None), (True, "x", 1)])
def test_a_judge_that_answers_nonsense_fails_the_request_closed(mode: Any, answer: Any) -> None:
    class Nonsense(PatternGuard):
        def open_judge(self, chunk: Chunk) -> Any:
            judge = super().open_judge(chunk)

            async def judge_nonsense(text: str, is_final: bool) -> Any:
                return answer

            judge.judge = judge_nonsense  # type: ignore[method-assign]
            return judge

    guard = Nonsense(mode=mode, window=2)
    with pytest.raises((JudgeError, TypeError, ValueError)):
        play(guard, list("abcdef"))
    assert guard.judges_made[0].is_closed


@pytest.mark.parametrize("mode", ["hold", "release"])
async def test_a_verdict_that_is_refused_closes_the_judge(mode: Any) -> None:
    class Wrong(PatternGuard):
        def _verdict(self, chunk: Chunk, stream: ReadStream) -> Verdict:
            return hold(99) if "five" in chunk.text else super()._verdict(chunk, stream)

    guard = Wrong(mode=mode, window=2)
    with pytest.raises(HookError):
        await guard_all(pipeline_of(guard), make_deltas(["one ", "two ", "three ", "four ", "five ", "six "]))
    await guard.close()
    assert [judge.is_closed for judge in guard.judges_made] == [True]


def test_mode_release_lets_text_out_while_the_judge_works() -> None:
    guard = PatternGuard(mode="release", window=8)
    judgements = play(guard, list("0123456789")).judgements
    assert {one.num_held for one in judgements} == {0}
    assert guard.judges_made[0].text == "0123456789"


def test_mode_release_ends_the_stream_when_the_verdict_comes() -> None:
    guard = PatternGuard("!", mode="release", window=4)
    released = said(guard, list("ab!cdefghijkl"))
    assert "ab!cdefghijkl".startswith(released)
    assert 3 <= len(released) <= 3 + 4


def test_mode_release_waits_once_a_window_is_out_unjudged() -> None:
    class Script(PatternGuard):
        num_out = 0

        async def __call__(self, chunk: Chunk) -> Verdict:
            verdict = await super().__call__(chunk)
            if isinstance(verdict, emit):
                self.num_out = max(self.num_out, verdict.unjudged or 0)
            return verdict

    async def slow() -> None:
        for _ in range(50):
            await asyncio.sleep(0)

    guard = Script(mode="release", window=6, wait=slow)
    said(guard, list("0123456789" * 4))
    assert 3 <= guard.num_out <= 6


class Suspects:
    """Finds text with a `?` suspect."""

    def __call__(self, chunk: Chunk) -> Verdict:
        return suspect("question") if "?" in chunk.text_diff else emit(chunk.pending)


def test_a_judge_of_suspect_streams_is_not_asked_before() -> None:
    guard = PatternGuard(window=1, only_when="suspect")
    judgements = play([Suspects(), guard], list("so it goes!")).judgements
    assert guard.judges_made == []
    assert {one.num_held for one in judgements} == {0}


def test_a_judge_of_suspect_streams_sees_them_from_their_beginning() -> None:
    guard = PatternGuard("!", window=4, only_when="suspect")
    assert play([Suspects(), guard], list("so? it goes! on")).content == "so? it goes"
    assert asked_by(guard)[0] == "so?"


def test_a_judge_of_suspect_streams_decides_before_more_text_leaves() -> None:
    guard = PatternGuard("so", window=4, only_when="suspect")
    assert play([Suspects(), guard], ["so", " it", "?", " goes"]).content == "so it"


def test_a_suspicion_holds_for_all_outputs_of_the_request() -> None:  # contract 3.16
    guard = PatternGuard("b", window=1, only_when="suspect")
    pieces = ((0, "a"), (1, "b"), (0, "?"), (1, "bb"), (0, "a"))
    deltas = [Delta(index=index, text=text) for index, text in pieces]
    released = asyncio.run(guard_all(pipeline_of(Suspects(), guard), deltas, make_request(n=2)))
    assert [delta.text for delta in released if delta.index == 1 and delta.text] == ["b"]


@pytest.mark.parametrize("mode", ["hold", "release"])
def test_action_suspect_withholds_nothing_and_asks_no_more(mode: Any) -> None:
    guard = PatternGuard("!", mode=mode, window=2, action="suspect")
    judgements = play(guard, list("ab!cdefgh")).judgements
    assert [one.action for one in judgements].count("suspect") == 1
    assert play(guard, list("ab!cdefgh")).content == "ab!cdefgh"
    assert all(len(judge.text) < 9 and judge.is_closed for judge in guard.judges_made)


EXAMPLE = str(ROOT / "examples" / "model_guard.py:Unkind")


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("They look like a fool, you fool.", "They look like a fool, you fool."),
        ("He is a fool. You are nice.", "He is a fool. "),  # the whole stream is judged
        ("You are a nice fool.", "You are a nice "),
    ],
)
def test_a_cascade_judges_what_a_cheap_guard_finds_suspect(said: str, wanted: str) -> None:
    cheap = HookSpec("phrases", args={"phrases": ["you are", "you look"], "action": "suspect"})
    judge = HookSpec(EXAMPLE, args={"only_when": "suspect", "window": 2})
    pieces = re.findall(r"\s?\S+", said)
    released = play([cheap, judge], stream_of(pieces))
    assert (released.content, said.startswith(released.content)) == (wanted, True)


@pytest.mark.slow
async def test_the_hook_check_does_not_compare_what_a_judge_says_of_other_pieces() -> None:
    results = await check(HookSpec(EXAMPLE, args={"mode": "release", "window": 4}))
    assert [result for result in results if not result.is_good] == []


async def test_the_fuzzer_looks_for_secrets_alone_in_what_a_judge_releases() -> None:
    text = "You are so stupid that it is a pity."
    example = Example("content", text, tuple(range(1, len(text))), streaming=True, in_worker=False)
    release = HookSpec(EXAMPLE, args={"mode": "release", "window": 64})
    assert await Fuzzer(release)._problem_of(example) is None
    problem = await Fuzzer(release, secrets=["stupid"])._problem_of(example)
    assert problem is not None
    assert problem.startswith("'stupid' is released")


def test_it_reads_the_sources_that_it_is_told_to_and_may_mark_the_request() -> None:  # contract 8.6, 8.15
    said = [{"role": "user", "content": "Hi!"}, {"role": "tool", "tool_call_id": "1", "content": "ok"}]
    assert (
        play(PatternGuard("!", prompt="refuse", of=["tool"]), stream_of("yes", prompt=said)).refused is None
    )
    assert play(PatternGuard("!", prompt="refuse", of=["user"]), stream_of("yes", prompt=said)).refused
    marked = play(PatternGuard("ok", prompt="taint"), stream_of("yes", prompt=said))
    assert marked.request is not None
    assert marked.request.taint
    unmarked = play(PatternGuard("!", prompt="taint"), stream_of("yes", prompt=said))
    assert unmarked.request is not None
    assert unmarked.request.taint is None
