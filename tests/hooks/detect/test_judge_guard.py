"""Guards whose judge takes its time: nothing is let go that is not judged, and no cut changes what is."""

import asyncio
import json
import re
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hooks import prompt_texts
from hooks.decisions.failure import HookError
from hooks.detect.detector import Match
from hooks.detect.judge_guard import JudgeGuard
from hooks.detect.windows import Windows, make_windows
from hooks.testing import WAYS, assert_chunk_invariant, assert_never_released, play, stream_of
from hooks.testing.streams import request_for
from tests.helpers import examples, ids_of, make_deltas, make_request, pipeline_of
from tests.hooks.builtin.streams import PLACES, cut, replaced, run, said
from tests.hooks.detect.test_windows import TEXTS, seen, windows


@pytest.fixture(autouse=True)
def mode() -> str:
    return "both, as each test says"


class Finds:
    """A judge that finds a pattern, or takes a text that has one whole. It remembers what it was shown."""

    def __init__(self, pattern: str, *, whole: bool = False) -> None:
        self.pattern = re.compile(pattern)
        self.whole = whole
        self.shown: list[str] = []

    async def __call__(self, texts: list[str]) -> list[list[Match]]:
        self.shown += texts
        await asyncio.sleep(0)
        return [self.find(text) for text in texts]

    def find(self, text: str) -> list[Match]:
        found = [Match(*match.span(), "found") for match in self.pattern.finditer(text)]
        return [Match(0, len(text), "found")] if self.whole and found else found


def guard_of(judge: Finds, unit: Any = "characters", size: int = 10, stride: int = 6, **options: Any) -> Any:
    return JudgeGuard(judge, make_windows(unit, size, stride), **options)


def expected(judge: Finds, windows: Windows, text: str) -> str:
    places, *_ = seen(windows, [text])
    matches = [
        match._replace(start=start + match.start, end=start + match.end)
        for start, end in places
        for match in judge.find(text[start:end])
    ]
    return replaced(text, matches)


PATTERNS = st.sampled_from(["a", r"\w+", "ds? l", "[.!]", "x{3}", "r$", "^ "])


@given(windows(), TEXTS, PLACES, st.booleans(), PATTERNS)
def test_what_any_window_shows_is_taken_out_wherever_the_stream_is_cut(
    windows: Windows, text: str, places: list[int], whole: bool, pattern: str
) -> None:
    judge = Finds(pattern, whole=whole)
    wanted = expected(judge, windows, text)
    for pieces in ([text], cut(text, places), list(text)):
        assert said(JudgeGuard(judge, windows), pieces) == wanted


@given(windows(), TEXTS, PLACES)
def test_terminating_lets_go_what_stands_before_the_first_match(
    windows: Windows, text: str, places: list[int]
) -> None:
    judge = Finds("lo+n|!")
    first = re.search("\\[found\\]", expected(judge, windows, text))
    wanted = text[: first.start()] if first else text
    assert said(JudgeGuard(judge, windows, action="terminate"), cut(text, places)) == wanted


def test_text_waits_for_every_window_over_it() -> None:
    guard = guard_of(Finds("nothing"))
    released = [
        (judgement.action, judgement.end - judgement.num_held)
        for judgement in play(guard, list("0123456789abcdefghijklmnopq")).judgements
    ]
    assert [end for _, end in released] == [0] * 9 + [6] * 6 + [12] * 6 + [18] * 6 + [27]


def test_each_window_is_judged_once() -> None:
    judge = Finds("nothing")
    said(guard_of(judge), list("0123456789abcdefghij"))
    assert judge.shown == ["0123456789", "6789abcdef", "cdefghij"]


def test_a_channel_that_it_does_not_act_on_is_not_held() -> None:
    judge = Finds("nothing")
    guard = guard_of(judge, channels=["content"])
    judgements = play(guard, stream_of(["a", "b"], channel="reasoning")).judgements
    assert [judgement.num_held for judgement in judgements] == [0, 0, 0]
    assert judge.shown == []


def test_what_a_judge_raises_fails_the_request_closed() -> None:
    class Fails:
        async def __call__(self, texts: list[str]) -> list[list[Match]]:
            raise RuntimeError("no")

    guard = JudgeGuard(Fails(), make_windows("characters", 4, 4))
    with pytest.raises(HookError):
        run(guard, ["abc", "d"])


@pytest.mark.parametrize("prompt", ["redact", "refuse"])
def test_what_a_judge_raises_of_a_prompt_fails_the_request_closed(prompt: Any) -> None:
    class Fails:
        async def __call__(self, texts: list[str]) -> list[list[Match]]:
            raise RuntimeError("no")

    guard = JudgeGuard(Fails(), make_windows("characters", 4, 4), prompt=prompt)
    with pytest.raises(RuntimeError, match="no"):
        play(guard, stream_of("ok", prompt="abc"))


def test_a_judge_that_answers_for_fewer_windows_fails_the_request() -> None:
    class Forgets:
        async def __call__(self, texts: list[str]) -> list[list[Match]]:
            return [[] for _ in texts[1:]]

    with pytest.raises(HookError):
        run(JudgeGuard(Forgets(), make_windows("characters", 4, 4)), ["abcdefgh"])


def test_nothing_of_a_window_that_is_taken_out_is_released() -> None:
    guard = guard_of(Finds("secret", whole=True), "sentences", 1, 1)
    source = "All is well. The secret is out. So it goes."
    assert play(guard, source).content == "All is well. [found]So it goes."
    assert_never_released(guard, source, "secret", "out", not_tried=WAYS)
    assert_chunk_invariant(guard, source)
    guard = guard_of(Finds("secret", whole=True), "sentences", 1, 1, action="suppress")
    assert play(guard, source).content == "All is well. So it goes."


async def test_a_request_that_is_cancelled_while_it_waits_leaves_others_alone() -> None:
    asked: list[str] = []
    answer = asyncio.Event()

    class Waits:
        async def __call__(self, texts: list[str]) -> list[list[Match]]:
            asked.extend(texts)
            await answer.wait()
            return [[] for _ in texts]

    pipeline = pipeline_of(JudgeGuard(Waits(), make_windows("characters", 2, 2)))
    guards = [pipeline.open(make_request()) for _ in range(2)]
    loop = asyncio.get_running_loop()
    feeding = [
        loop.create_task(cast(Any, guard.feed(make_deltas([text])[0])))
        for guard, text in zip(guards, ("ab", "cd"), strict=True)
    ]
    while len(asked) < 2:
        await asyncio.sleep(0)
    feeding[0].cancel()
    await asyncio.gather(feeding[0], return_exceptions=True)
    await guards[0].close()
    answer.set()
    (released,) = (await feeding[1]).released
    assert (feeding[0].cancelled(), released.text, ids_of([released])) == (True, "cd", [0])
    await guards[1].close()


PARTS = ["bad", "good ", " ", "\n", '"', "\\", "😀", "é", "41", "x" * 9]
STRINGS = st.lists(st.sampled_from(PARTS), max_size=6).map("".join)
NUMBERS = st.integers(-99, 4113) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    STRINGS | NUMBERS | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STRINGS, inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(STRINGS, VALUES, max_size=4), PLACES, st.booleans(), windows(), st.sampled_from("rs"))
@example({"a": 4111, "b": [1, True, "bad"]}, [], False, make_windows("characters", 12, 12), "r")
def test_a_window_taken_out_of_a_tool_calls_arguments_leaves_json(
    value: dict[str, Any], places: list[int], escaped: bool, windows: Windows, action: str
) -> None:
    written = json.dumps(value, ensure_ascii=escaped)
    judge = Finds("bad", whole=True)
    guard = JudgeGuard(judge, windows, action="redact" if action == "r" else "suppress")
    released = said(guard, cut(written, places), "tool_call")
    if action == "r" or released == written:  # of a suppressed call, only the beginning can leave
        json.loads(released)
    else:
        assert written.startswith(released)
    assert said(guard, list(written), "tool_call") == said(guard, [written], "tool_call") == released
    if all("bad" not in text for text in judge.shown):
        assert released == written


@given(windows(), st.lists(st.sampled_from([*'1x :,"\\[.e-', "12", "true", "9" * 33])).map("".join), PLACES)
@example(make_windows("characters", 2, 1), "111", [2])
def test_where_arguments_are_cut_changes_nothing(windows: Windows, text: str, places: list[int]) -> None:
    guard = JudgeGuard(Finds(r"1|\w{4,40}|[,:\[]+"), windows)
    assert said(guard, cut(text, places), "tool_call") == said(guard, [text], "tool_call")


def test_of_a_window_of_arguments_what_says_something_goes() -> None:
    guard = guard_of(Finds("bad", whole=True), "sentences", 1, 1)
    written = '{"a b": "bad", "n": [1, 4.5e3, true, null], "s": ""}'
    assert said(guard, list(written), "tool_call") == (
        '{"[found]": "[found]", "[found]": ["[found]", "[found]", true, null], "[found]": ""}'
    )
    assert said(guard, list("bad: no JSON, 41"), "tool_call") == "[found]: [found] [found], 41"


def test_a_place_in_arguments_that_is_more_than_one_string_leaves_json() -> None:
    guard = guard_of(Finds("bad.*worse"), "sentences", 1, 1)
    assert said(guard, list('{"a": "so bad", "b": 2, "c": "worse x"}'), "tool_call") == (
        '{"a": "so [found]", "[found]": "[found]", "[found]": "[found] x"}'
    )


def asked(guard: JudgeGuard, prompt: Any, **options: bool) -> list[str]:
    """The texts that the engine is asked, whose answer is let through."""
    released = play(guard, stream_of("ok", prompt=prompt), **options)
    assert released.request is not None
    return [text.text for text in prompt_texts(released.request)]


@examples(50)
@given(windows(), TEXTS.filter(bool), PATTERNS, st.booleans())
def test_of_a_prompt_what_any_window_shows_is_taken_out(
    windows: Windows, text: str, pattern: str, whole: bool
) -> None:
    judge = Finds(pattern, whole=whole)
    guard = JudgeGuard(judge, windows, prompt="redact", action="terminate", channels=["reasoning"])
    assert asked(guard, text) == [expected(judge, windows, text)]


@pytest.mark.parametrize("options", [{}, {"in_worker": True}, {"streaming": False}])
def test_a_prompt_is_refused_or_redacted_as_it_is_told(options: dict[str, bool]) -> None:
    judge = Finds("bad", whole=True)
    said = "All is well. It is bad. So it goes."
    guard = guard_of(judge, "sentences", 1, 1, prompt="refuse", text="No.")
    released = play(guard, stream_of("ok", prompt=said), **options)
    assert (released.refused, released.request, released.content) == ("found", None, "No.")
    assert asked(guard, "All is well.", **options) == ["All is well."]
    guard = guard_of(judge, "sentences", 1, 1, prompt="redact")
    assert asked(guard, said, **options) == ["All is well. [found]So it goes."]
    assert asked(guard_of(judge), said, **options) == [said]
    assert guard_of(judge).on_request is None


def test_all_windows_of_a_prompt_are_judged_at_once_whoever_said_them() -> None:
    calls = []

    class Counts(Finds):
        async def __call__(self, texts: list[str]) -> list[list[Match]]:
            calls.append(texts)
            return await super().__call__(texts)

    messages = [{"role": "system", "content": "One. Two."}, {"role": "user", "content": "Three."}]
    for prompt in ("redact", "refuse"):
        windows = make_windows("sentences", 1, 1)
        asked(JudgeGuard(Counts("x"), windows, prompt=prompt, channels=["reasoning"]), messages)
    assert calls == [["One. ", "Two.", "Three."]] * 2


def test_what_only_reads_across_parts_is_found() -> None:
    for parts in (["it is ba", "d"], ["it is bad", " as bad"]):
        content = [{"type": "text", "text": part} for part in parts]
        texts = asked(guard_of(Finds("bad( as)?"), prompt="redact"), [{"role": "user", "content": content}])
        assert "bad" not in "".join(texts)
        assert "[found]" in "".join(texts)


CALL: dict[str, Any] = {
    "id": "c",
    "type": "function",
    "function": {"name": "say_bad", "arguments": '{"a": "b\\u0061d", "n": 1}'},
}
CALLS: list[dict[str, Any]] = [
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "user", "content": "ok"},
]
TOOL = {"type": "function", "function": {"name": "bad", "parameters": {"properties": {"bad": {}}}}}


def test_calls_and_tools_in_a_prompt_stay_what_they_are() -> None:
    request = replace(request_for(CALLS), tools=(TOOL,))
    for whole in (False, True):
        judge = Finds("bad", whole=whole)
        guard = JudgeGuard(judge, make_windows("characters", 500, 500), prompt="redact")
        released = play(guard, stream_of("ok", prompt=request))
        assert released.request is not None
        (sent,) = released.request.messages[0]["tool_calls"]
        (tool,) = released.request.tools
        assert "bad" not in json.dumps([sent, tool])
        assert (sent.keys(), sent["function"].keys()) == (CALL.keys(), CALL["function"].keys())
        assert (sent["type"], tool["type"]) == ("function", "function")
        assert tool["function"]["name"].startswith("found")
        json.loads(sent["function"]["arguments"])
    guard = guard_of(Finds("bad"), prompt="refuse")
    assert play(guard, stream_of("ok", prompt=CALLS)).refused == "found"


@pytest.mark.parametrize(
    ("at_cut", "released"), [(None, "quiet words [found]"), ("withhold", "quiet words ")]
)
def test_at_a_cut_the_last_window_is_judged_or_withheld(at_cut: Any, released: str) -> None:
    """Contract 3.12: a judge cannot say what may become a match."""
    options = {} if at_cut is None else {"at_cut": at_cut}
    stream = stream_of("quiet words bad", is_cut=True)
    guard = guard_of(Finds("bad"), size=6, stride=6, **options)
    assert play(guard, stream).content == released
    assert play(guard, stream_of("quiet words bad")).content == "quiet words [found]"
    assert_chunk_invariant(guard, stream)


def test_a_judge_is_not_shown_the_clients_own_words() -> None:
    judge = Finds("bad", whole=True)
    assert play(guard_of(judge), stream_of("fine", lead="bad ")).content == "fine"
    assert judge.shown == ["fine"]
