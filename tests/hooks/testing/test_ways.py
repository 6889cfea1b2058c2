"""A secret is tried in every way in which a client may get it, and what is not tried is said by name."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hooks import Chunk, Verdict, emit, hold, redact
from hooks.testing import WAYS, assert_never_released, play, stream_of
from hooks.testing.ways import MAX_PLACES, attempts, attempts_in, not_tried

ROOT = Path(__file__).parents[3]
RIGHT = f"{ROOT}/examples/order_numbers.py:OrderNumbers"
SECRET = "ORD-2026-000123"
SAID = f"Your order is {SECRET} today."
NUMBER = re.compile(r"ORD-\d{4}-\d{6}")


class ByHand:
    """Holds what may become a number. It looks at the text as it is written, and at nothing else."""

    def __call__(self, chunk: Chunk) -> Verdict:
        text = chunk.pending
        spans = [(found.start(), found.end(), "[order]") for found in NUMBER.finditer(text)]
        done = spans[-1][1] if spans else 0
        begun = re.search(r"O(R(D(-\d{0,4}(-\d{0,5})?)?)?)?\Z", text[done:])
        return redact(spans, hold=0 if begun is None or chunk.is_final else len(begun[0]))


def ways_missed(hook: Any, **options: Any) -> list[str]:
    with pytest.raises(AssertionError) as raised:
        assert_never_released(hook, SAID, SECRET, **options)
    return re.findall(r"^  way     (\w+)$", str(raised.value), re.MULTILINE)


def test_a_guard_made_of_the_public_parts_gets_every_way_right() -> None:
    assert play(RIGHT, SAID).content == "Your order is [order] today."
    assert_never_released(RIGHT, SAID, SECRET)


def test_a_guard_written_by_hand_is_shown_each_way_that_it_misses() -> None:
    assert ways_missed(ByHand) == ["tool_name", "json_escape", "typography", "lead", "cut"]


def test_a_tools_name_is_shown_where_the_secret_stands_in_it() -> None:
    with pytest.raises(AssertionError, match=f"  way     tool_name\n  tool    {SAID!r}\n"):
        assert_never_released(ByHand, SAID, SECRET)


def test_ways_are_left_out_by_name() -> None:
    assert ways_missed(ByHand, not_tried=["lead", "cut", "tool_name"]) == ["json_escape", "typography"]
    assert_never_released(ByHand, SAID, SECRET, not_tried=WAYS)
    with pytest.raises(ValueError, match=r"the ways are content, .* not lede"):
        assert_never_released(ByHand, SAID, SECRET, not_tried=["lede"])


@pytest.mark.parametrize("channel", ["content", "reasoning", "tool_call", "echo"])
def test_a_channel_that_a_guard_passes_over_is_found(channel: str) -> None:
    source = stream_of(SAID, channel="reasoning" if channel == "content" else "content")

    class PassesOver:
        max_hold = None

        def __call__(self, chunk: Chunk) -> Verdict:
            if chunk.channel == channel:
                return emit(chunk.pending)
            return emit(NUMBER.sub("[order]", chunk.pending)) if chunk.is_final else hold()

    with pytest.raises(
        AssertionError, match=f"is released, {WAYS[channel]}, not cut: in the text of {channel}"
    ):
        assert_never_released(PassesOver, source, SECRET)


def test_a_secret_is_tried_as_its_stream_says_it() -> None:
    class BehindAWord:
        """What is secret depends on the word before it."""

        def __call__(self, chunk: Chunk) -> Verdict:
            if not chunk.is_final:
                return hold()
            return emit(re.sub(r"(?<=code )\w+", "***", chunk.pending))

    others = [way for way in WAYS if way not in ("content", "reasoning", "echo")]
    assert_never_released(BehindAWord, "Take the code hunter2 now.", "hunter2", not_tried=others)
    with pytest.raises(AssertionError, match="is released"):
        assert_never_released(BehindAWord, "Take hunter2 now.", "hunter2", not_tried=others)


def test_a_hook_that_fails_in_a_way_is_told_with_its_error() -> None:
    class Fails(ByHand):
        def __call__(self, chunk: Chunk) -> Verdict:
            if chunk.channel == "reasoning":
                raise ZeroDivisionError("just so")
            return super().__call__(chunk)

    with pytest.raises(
        AssertionError, match=r"it fails on .* in reasoning, not cut: ZeroDivisionError"
    ) as raised:
        assert_never_released(Fails, SAID, SECRET)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("secret", [SECRET, "Zoë 🎉 O'Neill", 'a "quoted" \\ word', "x" * 500])
def test_each_attempt_says_the_secret_and_no_more_than_its_way_changes(secret: str) -> None:
    made = attempts(secret)
    assert {attempt.way for attempt in made} == set(WAYS)
    assert len(made) < 4 * MAX_PLACES + 20
    for attempt in made:
        text = "".join(timed.delta.text for timed in attempt.stream.deltas)
        if attempt.stream.deltas[0].delta.channel == "tool_call" and attempt.way != "tool_name":
            assert secret in json.loads(text)["text"]
        if attempt.way == "lead":
            assert secret in attempt.lead + text
        assert attempt.place_of_leak(play(lambda chunk: emit(chunk.pending), attempt.stream)) is not None


def test_a_completion_continues_its_prompt() -> None:
    request = stream_of("x").request
    completion = type(request)(request_id="1", model="m", endpoint="completions", prompts=("Say: ",))
    leads = [one for one in attempts("ab", request=completion) if one.way == "lead"]
    assert [one.stream.request.prompts for one in leads] == [("Say: It is a",)]


def test_what_is_not_tried_is_named() -> None:
    assert "base64 and other codes" in not_tried([SECRET])
    assert not_tried([]) == ["whether a secret leaves (--secret)"]
    assert any(line.startswith("'x' begun in the text") for line in not_tried(["x"]))
    assert {one.way for one in attempts("x")} == set(WAYS) - {"lead", "cut"}


def test_a_secret_stands_in_the_first_text_that_says_it() -> None:
    (first, *_) = attempts_in(["b"], ["aaa", "abc", "bbb"])
    assert "".join(timed.delta.text for timed in first.stream.deltas) == "abc"


def test_a_hook_that_asks_a_judge_is_shown_each_attempt_once() -> None:
    class Judges:
        judges = True
        num_calls = 0

        def __call__(self, chunk: Chunk) -> Verdict:
            Judges.num_calls += chunk.is_final
            return emit(NUMBER.sub("[order]", chunk.pending)) if chunk.is_final else hold()

    assert_never_released(Judges, SAID, SECRET, num_random=0, not_tried=WAYS)
    num_source = Judges.num_calls
    others = [way for way in WAYS if way != "reasoning"]
    assert_never_released(Judges, SAID, SECRET, num_random=0, not_tried=others)
    assert Judges.num_calls == 2 * num_source + 1
