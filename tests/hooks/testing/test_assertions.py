"""The two assertions pass for guards that are right, and show what is wrong with the others."""

import asyncio
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from engine.protocol import Delta, SamplingParams, Token, ToolCall, TopLogprob
from engine.streams.recording import Recording, TimedDelta
from hooks import Chunk, GenerationRequest, Refusal, Verdict, emit, hold, refuse, suppress, terminate
from hooks.testing import WAYS, assert_chunk_invariant, assert_never_released, stream_of
from hooks.testing.run_modes import MAX_IN_TWO
from hooks.testing.streams import request_for
from tests.helpers import slow

ROOT = Path(__file__).parents[3]
RECORDINGS = sorted((ROOT / "tests" / "recordings").glob("*.jsonl"))
RIGHT = [f"{ROOT}/examples/banned_phrase.py:BannedPhrase", f"{ROOT}/examples/redact_email.py:RedactEmail"]


class Refuses:
    """Says nothing to who asks no question."""

    def on_request(self, request: GenerationRequest) -> GenerationRequest | Refusal:
        is_question = "?" in str(request.messages)
        return request if is_question else refuse("no_question", "Ask me something.")

    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending.replace("hunter2", "***")) if chunk.is_final else hold()


def passing(chunk: Chunk) -> Verdict:
    return emit(chunk.pending)


class Naive:
    """Looks at each chunk by itself."""

    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending.replace("hunter2", "***"))


SAID = "It is hunter2, I think."


@pytest.mark.parametrize("hook", RIGHT)
@pytest.mark.parametrize(
    "path",
    [
        path if path.stem in ("email", "phrase", "tool_call", "reasoning") else slow(path)
        for path in RECORDINGS
    ],
    ids=lambda path: path.stem,
)
def test_the_examples_are_right_on_every_recording(hook: str, path: Path) -> None:
    stream = stream_of(path, reasoning_parser="qwen3", tool_call_parser="hermes")
    assert_chunk_invariant(hook, stream)


def test_a_pipeline_is_cut_as_a_whole() -> None:
    assert_chunk_invariant(RIGHT, "Write to a.b@initech.org about Project Bluebird!")


def test_the_smallest_cut_that_tells_is_shown() -> None:
    with pytest.raises(AssertionError) as error:
        assert_chunk_invariant(Naive, SAID)
    assert str(error.value).splitlines() == [
        "not the same wherever the stream is cut",
        "cut at 7 (streaming):",
        "  chunks  'It is h' | 'unter2, I think.'",
        "  content of output 0, from character 6 on",
        "  whole   'It is ***, I think.'",
        "  cut     'It is hunter2, I think.'",
    ]


def interleaved(*outputs: str) -> Recording:
    """Each output's words come by turns, and then their ends."""
    words = [text.split(" ") for text in outputs]
    deltas = [
        Delta(index=i, text=f" {word}") for turn in zip(*words, strict=True) for i, word in enumerate(turn)
    ]
    deltas += [Delta(index=i, finish_reason="stop") for i in range(len(outputs))]
    request = replace(request_for(), sampling=SamplingParams(n=len(outputs)))
    return Recording(request, tuple(TimedDelta(0.0, delta) for delta in deltas))


class NaiveAboutTwo:
    """Looks for two words, which it never sees in one chunk of the recording."""

    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending.replace("secret project", "***"))


def test_outputs_that_come_by_turns_are_whole_each_in_one_chunk() -> None:
    with pytest.raises(AssertionError) as error:
        assert_chunk_invariant(NaiveAboutTwo, interleaved("the secret project", "a secret thing"))
    assert str(error.value).splitlines()[1:] == [
        "cut at 6 (streaming):",
        "  chunks of output 0, content:  ' the s' | 'ecret project'",
        "  chunks of output 1, content:  ' a secret thing'",
        "  content of output 0, from character 5 on",
        "  whole   ' the ***'",
        "  cut     ' the secret project'",
    ]


def test_channels_that_come_by_turns_are_whole_each_in_one_chunk() -> None:
    call = Delta(channel="tool_call", tool_call=ToolCall(0, "f"), text="{}")
    deltas = (Delta(text="a secret"), call, Delta(text=" project"), Delta(finish_reason="tool_calls"))
    stream = Recording(request_for(), tuple(TimedDelta(0.0, delta) for delta in deltas))
    with pytest.raises(AssertionError, match=r"chunks of output 0, tool_call 0:  '\{}'"):
        assert_chunk_invariant(NaiveAboutTwo, stream)


def test_one_that_mixes_outputs_up_is_told() -> None:
    class Mixes:
        held = ""

        def __call__(self, chunk: Chunk) -> Verdict:
            if not chunk.is_final:
                self.held += chunk.text_diff
                return suppress()
            text, self.held = self.held + chunk.pending, ""
            return emit(text)

    with pytest.raises(AssertionError, match="as it was recorded"):
        assert_chunk_invariant(Mixes, interleaved("one two", "three four"))


@pytest.mark.parametrize(
    "said", [("a Project Bluebird here", "and so it goes"), ("so it goes on", "Project Bluebird it is")]
)
def test_one_that_ends_the_request_may_end_it_wherever_the_others_are(said: tuple[str, str]) -> None:
    assert_chunk_invariant(RIGHT[0], interleaved(*said))


def test_a_cut_with_many_places_is_made_smaller() -> None:
    def miscounts(chunk: Chunk) -> Verdict:
        chunk.state["short"] = chunk.state.get("short", 0) + (len(chunk.text_diff) == 1)
        return emit(chunk.pending if chunk.state["short"] < 3 else "?")

    with pytest.raises(AssertionError) as error:
        assert_chunk_invariant(miscounts, "abcdefgh")
    cut = str(error.value).splitlines()[1].removeprefix("cut at ").removesuffix(" (streaming):")
    assert len(cut.split(", ")) == 3


def test_a_difference_in_the_ending_is_told() -> None:
    def ends(chunk: Chunk) -> Verdict:
        return (
            emit(chunk.pending) if len(chunk.text_diff) < 5 else terminate("long", after=len(chunk.pending))
        )

    with pytest.raises(AssertionError, match=r"finish of output 0: whole \('content_filter', 'long'\), cut"):
        assert_chunk_invariant(ends, "abcdef")


def test_one_that_says_something_else_without_streaming_is_told() -> None:
    def shy(chunk: Chunk) -> Verdict:
        return emit(chunk.pending if chunk.streaming else chunk.pending.upper())

    with pytest.raises(AssertionError, match=r"not cut \(not streaming\)"):
        assert_chunk_invariant(shy, "abc")


def test_one_that_says_something_else_in_a_worker_is_told() -> None:
    def homesick(chunk: Chunk) -> Verdict:
        task = asyncio.current_task()
        is_at_home = task is not None and "Worker" not in repr(task.get_coro())
        return emit(chunk.pending if is_at_home else chunk.pending.upper())

    with pytest.raises(AssertionError, match=r"not cut \(streaming, in a worker\)"):
        assert_chunk_invariant(homesick, "abc")


@pytest.mark.slow
def test_a_long_stream_is_cut_in_two_at_so_many_places() -> None:
    seen: list[list[str]] = []

    def look(chunk: Chunk) -> Verdict:
        if len(chunk.text) == len(chunk.text_diff):
            seen.append([])
        seen[-1].append(chunk.text_diff)
        return emit(chunk.pending)

    said = "word " * 1000
    assert_chunk_invariant(look, said, num_random=0)
    in_two = [chunks[0] for chunks in seen if len(chunks) == 2]
    assert 0.8 * MAX_IN_TWO < len(set(in_two)) <= MAX_IN_TWO
    assert len([first for first in in_two if first.endswith("word")]) > 0.8 * MAX_IN_TWO / 2
    assert max(len(chunks) for chunks in seen) == len(said) + 1


def test_one_that_does_not_always_say_the_same_is_told() -> None:
    chunks = count()

    def moody(chunk: Chunk) -> Verdict:
        return emit(chunk.pending + "!" * (next(chunks) == 9))

    with pytest.raises(AssertionError, match="the hook does not always say the same"):
        assert_chunk_invariant(moody, "abcdef")


def test_one_that_fails_is_told_with_its_own_exception() -> None:
    def fails(chunk: Chunk) -> Verdict:
        if len(chunk.text_diff) == 1:
            raise ZeroDivisionError("just so")
        return emit(chunk.pending)

    with pytest.raises(AssertionError, match="whole: no failure; cut: ZeroDivisionError: just so") as error:
        assert_chunk_invariant(fails, "abc")
    assert isinstance(error.value.__cause__, ZeroDivisionError)
    with pytest.raises(AssertionError, match="fails on the whole stream") as error:
        assert_chunk_invariant(fails, "a")
    assert isinstance(error.value.__cause__, ZeroDivisionError)


def test_the_same_seed_draws_the_same_random_cuts() -> None:
    seen: list[list[str]] = []

    def look(chunk: Chunk) -> Verdict:
        seen[-1].append(chunk.text_diff)
        return emit(chunk.pending)

    for seed in (1, 1, 2):
        seen.append([])
        assert_chunk_invariant(look, "abcdefghijk", num_random=5, seed=seed)
    assert seen[0] == seen[1] != seen[2]


def test_what_is_withheld_is_never_released() -> None:
    said = "Write to a.b@initech.org, or to c@d.example!"
    assert_never_released(RIGHT[1], said, "a.b@initech.org", "c@d.example", not_tried=WAYS)
    recording = stream_of(ROOT / "tests" / "recordings" / "email.jsonl")
    assert_never_released(RIGHT[1], recording, "help@millrace.example.com", "millrace", not_tried=WAYS)


def test_what_is_released_at_one_cut_only_is_told() -> None:
    where = "the text of content, output 0, cut at 7"
    with pytest.raises(AssertionError, match=f"'hunter2' is released: in {where}"):
        assert_never_released(Naive, SAID, "hunter2")


def test_a_closing_text_and_a_reason_are_looked_at() -> None:
    def talkative(chunk: Chunk) -> Verdict:
        return terminate("secret", text=f"I won't say {chunk.pending}")

    with pytest.raises(AssertionError, match="the text of content"):
        assert_never_released(talkative, "hunter2", "hunter2")

    def indiscreet(chunk: Chunk) -> Verdict:
        return terminate(chunk.text)

    with pytest.raises(AssertionError, match="the stop_reason"):
        assert_never_released(indiscreet, "hunter2", "hunter2")


@pytest.mark.parametrize(("alternatives", "is_released"), [(True, True), (False, False)])
def test_alternatives_are_looked_at(alternatives: bool, is_released: bool) -> None:
    token = Token(1, "a", b"a", -0.5, (TopLogprob(2, b"hunter2", -1.0),))
    deltas = (Delta(text="a", tokens=(token,)), Delta(finish_reason="stop"))
    stream = Recording(request_for(), tuple(TimedDelta(0.0, delta) for delta in deltas))

    def hook(chunk: Chunk) -> Verdict:
        return emit(chunk.pending, alternatives=alternatives)

    if is_released:
        with pytest.raises(AssertionError, match="the top alternatives"):
            assert_never_released(hook, stream, "hunter2")
    else:
        assert_never_released(hook, stream, "hunter2")


def test_a_tools_name_is_looked_at() -> None:
    call = ToolCall(0, "hunter2")
    deltas = (Delta(channel="tool_call", tool_call=call, text="{}"), Delta(finish_reason="tool_calls"))
    stream = Recording(request_for(), tuple(TimedDelta(0.0, delta) for delta in deltas))
    with pytest.raises(AssertionError, match="a tool's name"):
        assert_never_released(passing, stream, "hunter2")


def test_a_secret_that_is_not_said_proves_nothing() -> None:
    with pytest.raises(AssertionError, match="does not contain 'hunter3'"):
        assert_never_released(passing, SAID, "hunter3")


def test_what_is_released_without_streaming_only_is_told() -> None:
    def careless(chunk: Chunk) -> Verdict:
        return hold() if not chunk.is_final else emit("***" if chunk.streaming else chunk.pending)

    with pytest.raises(AssertionError, match=r"output 0, not cut \(not streaming\)"):
        assert_never_released(careless, SAID, "hunter2")


def test_what_only_two_cuts_release_is_found_at_random() -> None:
    def forgetful(chunk: Chunk) -> Verdict:
        if not chunk.is_final and chunk.text_diff == "er2,":
            return emit("hunter2")
        return emit("") if chunk.is_final else hold()

    with pytest.raises(AssertionError, match="output 0, cut at 10, 14 "):
        assert_never_released(forgetful, SAID, "hunter2", num_random=3000)


def test_a_hook_that_fails_proves_nothing_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def fails(chunk: Chunk) -> Verdict:
        if chunk.is_final:
            raise ZeroDivisionError("just so")
        return hold()

    told = r"a hook fails, not cut \(streaming\), so this proves nothing: ZeroDivisionError: just so"
    with pytest.raises(AssertionError, match=told) as error:
        assert_never_released(fails, SAID, "hunter2")
    assert isinstance(error.value.__cause__, ZeroDivisionError)

    def fails_if_cut(chunk: Chunk) -> Verdict:
        return emit(chunk.pending) if len(chunk.text) == len(chunk.text_diff) else fails(chunk)

    caplog.clear()
    with pytest.raises(AssertionError, match="cut: ZeroDivisionError"):
        assert_chunk_invariant(fails_if_cut, "abcdefgh")
    assert len(caplog.records) == 1


def test_no_secret_proves_nothing() -> None:
    with pytest.raises(TypeError, match="needs one secret or more"):
        assert_never_released(passing, SAID)
    with pytest.raises(ValueError, match="a secret is empty"):
        assert_never_released(passing, SAID, "hunter2", "")


def test_a_refused_prompt_proves_nothing() -> None:
    said = "It is hunter2."
    assert_chunk_invariant(Refuses, said)
    assert_never_released(Refuses, said, "hunter2", not_tried=WAYS)
    stream = stream_of(said, prompt="Tell me.")
    with pytest.raises(AssertionError, match="refused: no_question, so this proves nothing"):
        assert_chunk_invariant(Refuses, stream)
    with pytest.raises(AssertionError, match="refused: no_question, so this proves nothing"):
        assert_never_released(Refuses, stream, "hunter2")
