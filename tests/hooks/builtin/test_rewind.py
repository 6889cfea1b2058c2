"""Guards that ship, and have the model say it otherwise."""

import asyncio
import hashlib
import re
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.parsers import Parsers
from hooks.builtin.patterns import Patterns
from hooks.builtin.phrases import Phrases
from hooks.builtin.pii import Pii
from hooks.builtin.prompt_leak import PromptLeak
from hooks.builtin.repetition import Repetition
from hooks.detect.detector import Match
from hooks.detect.judge_guard import JudgeGuard
from hooks.detect.span_guard import SpanGuard
from hooks.detect.windows import make_windows
from tests.helpers import Teller, examples, finish_of, guard_all, make_request, pipeline_of, text_of

WORDS = ["red", " Red", " tea", "tea", " ", "cup", "", "1", "2.", "😀", "-"]
GUARDS: dict[str, tuple[Callable[[], SpanGuard], Callable[[str], bool]]] = {
    "phrases": (
        lambda: Phrases(["red tea", "teacup"], action="rewind", word_boundaries=False),
        lambda text: "red tea" in text.lower() or "teacup" in text.lower(),
    ),
    "words": (
        lambda: Phrases(["red tea", "teacup", "1"], action="rewind"),
        lambda text: re.search(r"\b(red tea|teacup|1)\b", text, re.IGNORECASE) is not None,
    ),
    "patterns": (
        lambda: Patterns([r"\d-\d", "red( tea)+"], max_length=20, action="rewind"),
        lambda text: any(f"{a}-{b}" in text for a in "12" for b in "12") or "red tea" in text,
    ),
}


def words_of(seed: int) -> Callable[[tuple[str, ...]], Sequence[str]]:
    def tell(said: tuple[str, ...]) -> Sequence[str]:
        return sorted(WORDS, key=lambda word: hashlib.sha256(f"{seed} {said[-3:]} {word}".encode()).digest())

    return tell


@pytest.mark.parametrize("name", GUARDS)
@examples(40)
@given(seed=st.integers(0, 2**20), sizes=st.lists(st.integers(1, 5), max_size=30))
def test_nothing_forbidden_is_said_and_the_answer_is_one_however_it_is_cut(
    name: str, seed: int, sizes: list[int]
) -> None:
    make, is_forbidden = GUARDS[name]
    outcomes = []
    for cut in ([], sizes):
        teller = Teller(words_of(seed), cut, max_tokens=20)
        released = asyncio.run(guard_all(pipeline_of(make()), teller, can_rewind=True))
        text = text_of(released)
        assert not is_forbidden(text)
        reason, answer = finish_of(released)[0], "".join(teller.said[0])
        # At `max_tokens` the beginning of a possible match is withheld (contract 3.12).
        assert (
            reason == "content_filter" or text == answer or (reason == "length" and answer.startswith(text))
        )
        outcomes.append((text, finish_of(released)))
    assert outcomes[0] == outcomes[1]


def test_a_value_is_not_given_though_the_model_tries_others() -> None:
    ways = ["Mail ann@initech.com", "Mail bob@initech.com", "Mail us"]

    def tell(said: tuple[str, ...]) -> Sequence[str]:
        so_far = "".join(said)
        return [way[len(so_far) :][:3] for way in ways if way.startswith(so_far)]

    teller = Teller(tell)
    released = asyncio.run(guard_all(pipeline_of(Pii(action="rewind")), teller, can_rewind=True))
    assert (text_of(released), finish_of(released)) == ("Mail us", ("stop", None))


def test_a_loop_is_left() -> None:
    def tell(said: tuple[str, ...]) -> Sequence[str]:
        return ["" if "so" in said else "la ", "so"]

    guard = Repetition(min_repeats=3, min_length=9, max_period=5, action="rewind")
    released = asyncio.run(guard_all(pipeline_of(guard), Teller(tell), can_rewind=True))
    assert text_of(released) == "la la so"
    assert finish_of(released) == ("stop", None)


def test_the_prompt_is_not_told_though_the_model_tries() -> None:
    ways = ["I am told: never say the word. Bye.", "I am told: nothing. Bye."]

    def tell(said: tuple[str, ...]) -> Sequence[str]:
        so_far = "".join(said)
        return [way[len(so_far) :][:5] for way in ways if way.startswith(so_far)]

    request = make_request(messages=({"role": "system", "content": "Never say the word."},))
    guard = PromptLeak(min_words=3, action="rewind")
    released = asyncio.run(guard_all(pipeline_of(guard), Teller(tell), request, can_rewind=True))
    assert (text_of(released), finish_of(released)) == (ways[1], ("stop", None))


@pytest.mark.parametrize("sizes", [[], [30] * 4])
def test_another_call_is_made_where_a_name_is_found(sizes: list[int]) -> None:
    names = ["buy_red_tea", "brew", "ask"]
    ways = [[f'<tool_call>{{"name": "{name}", ', '"arguments": {}}', "</tool_call>", ""] for name in names]

    def tell(said: tuple[str, ...]) -> Sequence[str]:
        return [way[len(said)] for way in ways if way[: len(said)] == list(said)]

    teller = Teller(tell, sizes, parsers=Parsers(tool_calls="hermes"))
    request = make_request(tools=({"type": "function", "function": {"name": "ask", "parameters": {}}},))
    guard = Phrases(["red tea", "brew"], action="rewind", text="never said")
    released = asyncio.run(guard_all(pipeline_of(guard), teller, request, can_rewind=True))
    assert {d.tool_call.name for d in released if d.tool_call} == {"ask"}
    assert text_of(released, "tool_call") == "{}"
    assert (text_of(released), finish_of(released)[0]) == ("", "tool_calls")


@pytest.mark.parametrize("sizes", [[], [4] * 9])
def test_a_judge_is_asked_again_about_what_comes_instead(sizes: list[int]) -> None:
    asked: list[str] = []

    async def judge(texts: list[str]) -> list[list[Match]]:
        asked.extend(texts)
        return [[Match(0, len(text), "rude")] if "fool" in text else [] for text in texts]

    ways = ["One. Two. You are a fool. Bye.", "One. Two. Well, fool! Bye.", "One. Two. Farewell. Bye."]

    def tell(said: tuple[str, ...]) -> Sequence[str]:
        so_far = "".join(said)
        return [way[len(so_far) :][:5] for way in ways if way.startswith(so_far)]

    guard = JudgeGuard(judge, make_windows("sentences", 1, 1), action="rewind")
    released = asyncio.run(guard_all(pipeline_of(guard), Teller(tell, sizes), can_rewind=True))
    assert (text_of(released), finish_of(released)) == ("One. Two. Farewell. Bye.", ("stop", None))
    assert any("fool" in text for text in asked)


def test_no_alternative_spells_what_is_not_said() -> None:
    teller = Teller(lambda said: [["the "], ["red tea", "cup"], [""]][len(said)], [2])
    released = asyncio.run(
        guard_all(pipeline_of(Phrases(["red tea"], action="rewind")), teller, can_rewind=True)
    )
    assert text_of(released) == "the cup"
    assert [token.top for d in released for token in d.tokens if token.text] == [(), ()]
