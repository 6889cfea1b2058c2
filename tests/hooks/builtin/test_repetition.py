"""A loop: what trips, what does not, and that it trips at the same character wherever the stream is cut."""

import json
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.guards import PROSE
from hooks.builtin.repetition import LoopDetector, Repetition
from hooks.detect.detector import Match
from hooks.loading.loader import HookSpec
from hooks.testing import assert_chunk_invariant, play, stream_of
from hooks.testing.play import vetted
from tests.helpers import finish_of, make_deltas, make_request, opened, pipeline_of, text_of
from tests.hooks.builtin.streams import PLACES, SELDOM_IN_A_WORKER, Watch, cut, replaced, run, said

SHORT: dict[str, Any] = {"min_repeats": 3, "min_length": 13, "max_period": 8}
SENTENCE = "I am sorry, but as an assistant I cannot do that for you. "


@pytest.mark.parametrize("cuts", [[], [7, 15, 21, 33], range(60)])
def test_each_action_is_the_same_wherever_the_stream_is_cut(cuts: Any) -> None:
    pieces = cut("Well, tea tea tea tea tea tea, yes.", cuts)
    out = run(Repetition(**SHORT, text=" (and so on)"), pieces)
    assert text_of(out) == "Well, tea tea tea (and so on)"
    assert finish_of(out) == ("content_filter", "repetition")
    suppressed = said(Repetition(**SHORT, action="suppress"), pieces)
    assert suppressed == "Well, tea tea tea, yes."
    assert said(Repetition(**SHORT, action="redact"), pieces) == "Well, tea tea tea[repetition], yes."
    for channel in ("reasoning", "tool_call", "echo"):
        left = "Well, tea tea tea" if channel == "tool_call" else suppressed
        assert said(Repetition(**SHORT, action="suppress"), pieces, channel) == left
    assert said(Repetition(**SHORT, channels=["reasoning"]), pieces) == "".join(pieces)


def test_a_loop_in_a_prompt_is_cut_short_or_refused() -> None:
    prompt = "Well, tea tea tea tea tea tea, yes."
    spec = HookSpec("repetition", {**SHORT, "prompt": "redact"})
    played = play(spec, stream_of("ok", prompt=prompt))
    assert played.request is not None
    assert played.request.messages[0]["content"] == "Well, tea tea tea[repetition], yes."
    assert played.content == "ok"
    refusing = HookSpec("repetition", {**SHORT, "prompt": "refuse"})
    assert play(refusing, stream_of("ok", prompt=prompt)).refused == "repetition"


def loops(text: str, **arguments: Any) -> bool:
    return finish_of(run(Repetition(**arguments), [text])) == ("content_filter", "repetition")


@pytest.mark.parametrize(
    "text",
    [
        SENTENCE * 40,
        "Then " + "na " * 700,
        "!" * 2100,
        "\n" * 2100,
        PROSE + PROSE[-600:] * 5,
        "1. Wash your hands.\n2. Dry them.\n" * 70,
        "是的，" * 700,
        "😀" * 2100,
    ],
)
def test_a_loop_trips(text: str) -> None:
    assert loops(text)


ROW = "| {:>6} | {:<24} | {:>10} |\n"
LEGITIMATE = {
    "a table": "".join(ROW.format(i, "item " * (i % 4), i * 12.5) for i in range(200)),
    "a table to fill in": ROW.format("no.", "what", "price") + ROW.format("", "", "") * 30,
    "rules": ("-" * 80 + "\n\n" + PROSE[:60] + "\n") * 3 + "=" * 120 + "\n" + "+-" * 60,
    "indentation": "".join(" " * 4 * (i % 12) + "if x:\n" for i in range(60)) + " " * 200,
    "a checklist": "- [ ] \n" * 40,
    "a matrix": ("[" + "0, " * 19 + "0],\n") * 20,
    "a refrain": "".join(
        f"{PROSE[i * 60 : i * 60 + 60]}\nLa la la, la la la,\nla la la la!\n" for i in range(8)
    ),
    "a list": "".join(f"{i}. Say hello to person number {i}.\n" for i in range(1, 200)),
    "a csv of zeros": "0,0,0,0,0,0,0,0\n" * 60,
    "code": "".join(f"self.assertEqual(f({i}), {i * i})\n" for i in range(100)),
    "said three times": PROSE * 3,
    "prose": PROSE[:500] + SENTENCE * 10,
}


@SELDOM_IN_A_WORKER
@pytest.mark.parametrize("name", LEGITIMATE)
def test_what_has_reason_to_repeat_itself_does_not_trip(name: str) -> None:
    watch = Watch(Repetition())
    assert said(watch, list(LEGITIMATE[name])) == LEGITIMATE[name]
    assert watch.most_held == 0


def test_each_argument_is_a_condition() -> None:
    text = "abc" * 8
    assert loops(text, min_repeats=8, min_length=24, max_period=3)
    assert not loops(text, min_repeats=9, min_length=24, max_period=3)
    assert not loops(text, min_repeats=8, min_length=25, max_period=3)
    assert not loops(text, min_repeats=8, min_length=24, max_period=2)
    assert not loops(text[1:], min_repeats=8, min_length=1, max_period=3)


async def test_only_the_output_that_loops_is_ended_unless_asked_otherwise() -> None:
    async def both(guard: Repetition) -> dict[int, Any]:
        first, second = make_deltas(["tea "] * 6 + ["."]), make_deltas(list("I am fine."), index=1)
        deltas = [delta for pair in zip(first, second, strict=False) for delta in pair] + second[len(first) :]

        async def source(_: Any) -> Any:
            for delta in deltas:
                yield delta

        async with opened(pipeline_of(guard), make_request(n=2)) as guarding:
            out = [delta async for delta in vetted(guarding, source)]
        return {delta.index: (delta.finish_reason, text_of(out, index=delta.index)) for delta in out}

    assert await both(Repetition(**SHORT)) == {
        0: ("content_filter", "tea tea tea "),
        1: ("stop", "I am fine."),
    }
    assert (await both(Repetition(**SHORT, scope="request")))[1][0] == "content_filter"


def test_arguments_of_a_call_that_loop_are_read_as_json() -> None:
    written = json.dumps({"note": "x" + '"\n' * 30 + "end"})
    out = said(Repetition(**SHORT, action="redact"), list(written), "tool_call")
    assert json.loads(out) == {"note": "x" + '"\n' * 6 + "[repetition]end"}


@given(
    st.lists(
        st.tuples(st.text("ab", min_size=1, max_size=7), st.sampled_from([*range(1, 9), 30])), max_size=6
    ),
    PLACES,
    st.integers(2, 4),
    st.sampled_from([1, 3, 8, 20, 70]),
    st.sampled_from([1, 2, 5, 9]),
)
@example([("ab" * 20 + "c", 6)], [*range(1, 200)], 3, 150, 50)
def test_it_is_what_trying_every_period_at_every_character_gives(
    parts: list[tuple[str, int]], places: list[int], repeats: int, length: int, period: int
) -> None:
    text = "".join(part * times for part, times in parts)

    def is_loop(end: int) -> bool:
        needed = ((p, max(repeats * p, length)) for p in range(1, period + 1))
        return any(n <= end and text[end - n + p : end] == text[end - n : end - p] for p, n in needed)

    looping = [i for i in range(len(text)) if is_loop(i + 1)]
    starts = [i for i in looping if i - 1 not in looping]
    ends = [i + 1 for i in looping if i + 1 not in looping]
    expected = replaced(text, [Match(a, b, "repetition") for a, b in zip(starts, ends, strict=True)])
    arguments: dict[str, Any] = {"min_repeats": repeats, "min_length": length, "max_period": period}
    pieces = cut(text, places)
    assert said(Repetition(**arguments, action="redact"), pieces) == expected
    first = looping[0] if looping else len(text)
    assert text_of(run(Repetition(**arguments), pieces)) == text[:first]


def test_long_texts_are_searched_in_parts() -> None:
    """And what is kept of a stream, which is less than the stream, is enough."""
    rng = random.Random(3)
    sentences = [SENTENCE[:n] for n in (58, 31, 17)]
    text = "".join(rng.choice(sentences) * rng.choice((1, 2, 3, 4, 9, 30)) for _ in range(60))
    detector = LoopDetector(4, 300, 100)
    whole = [i for match in detector.scan(text)[0] for i in range(match.start, match.end)]
    assert whole
    for size in (1, 5, 40, 1000):
        found: list[int] = []
        for begin, end in pairwise([*range(0, len(text), size), len(text)]):
            gone = max(0, begin - detector.reach)
            matches, _ = detector.scan(text[gone:end], begin - gone, False)
            found += [gone + i for match in matches for i in range(match.start, match.end)]
        assert found == whole


def test_no_cut_changes_where_a_loop_is_found() -> None:
    text = "Well, tea tea tea tea, and then coffee coffee coffee coffee."
    for action in ("terminate", "suppress", "redact"):
        assert_chunk_invariant(Repetition(**SHORT, action=action), text)
