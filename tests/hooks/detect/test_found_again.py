"""Values that only the words before them show are found when they stand again by themselves."""

import asyncio
import random
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.leaks_again import run as run_streams
from benchmarks.leaks_again import standing
from engine.protocol import Delta, GenerationRequest, SamplingParams
from hooks import Chunk, PromptText, prompt_texts
from hooks.api import StreamContext
from hooks.builtin.phrases import Phrases
from hooks.builtin.pii import Pii
from hooks.builtin.secrets import Secrets
from hooks.detect.excerpt import Excerpt
from hooks.detect.found_again import MOST_VALUES, FoundAgain
from hooks.loading.loader import LoadedHook
from hooks.pipeline.pipeline import Pipeline
from hooks.testing.play import vetted
from tests.helpers import Source, examples, make_request, text_of
from tests.hooks.builtin.streams import PLACES, cut, said, ways_to_cut

V = "xK9#mQ2$vT7pLw"
GUARD = Secrets()
PLAIN = [
    f"token = '{V}' | '{V}'",
    f"The password is {V}. So {V}, ({V}) and {V}\n{V}",
    f"password: {V}\nThen curl -H 'x: {V}' https://ok.example/?k={V}&m=1",
    f"First {V}; the password is {V}; then {V}.",
    f"pwd={V} and {V[:-1]} {V} x{V} {V}x {V}",
    f"token password={V} and {V}",
    f"api_key secret pwd={V} and {V}",
]


@pytest.fixture(autouse=True)
def mode() -> str:
    return "no worker"


async def collected(guard: Any, deltas: list[Delta], *others: Any) -> list[Delta]:
    pipeline = Pipeline([LoadedHook.of(str(i), one) for i, one in enumerate((guard, *others))])
    return [one async for one in vetted(pipeline.open(make_request()), Source(deltas))]


def state_after(guard: Any, text: str) -> dict[Any, Any]:
    context = StreamContext(replace(make_request(), sampling=SamplingParams()))
    context.text_diffs.append(text)
    guard(Chunk(context, text))
    return context.state


@pytest.mark.parametrize("text", PLAIN)
def test_a_value_that_stands_again_is_acted_on_at_every_cut(text: str) -> None:
    whole = said(GUARD, [text])
    place = text.rindex("password") if "password" in text else 0
    start = text.index(V, place) + len(V)
    assert standing(whole, V) == standing(text[: start - len(V)], V)
    assert whole.count("[PASSWORD]") == standing(text, V) - standing(whole, V)
    for pieces in ways_to_cut(text, random.Random(1), 6):
        assert said(GUARD, pieces) == whole


def test_within_a_longer_word_it_is_another_value_and_before_it_was_shown_it_stays() -> None:
    text = f"First {V}; the password is {V}; x{V} {V}x."
    assert said(GUARD, [text]) == f"First {V}; the password is [PASSWORD]; x{V} {V}x."


@given(
    parts=st.lists(
        st.sampled_from(
            [
                V,
                f"password: {V}",
                f"token pwd={V}",
                f"'{V}'",
                V[:9],
                "Q7-w" * 3,
                "token: Q7-wQ7-wQ7-w",
                "and",
                " ",
                ".",
            ]
        ),
        max_size=9,
    ),
    places=PLACES,
    end=st.sampled_from(["stop", "length"]),
)
@examples(200)
def test_streamed_equals_whole(parts: list[str], places: list[int], end: Any) -> None:
    text = " ".join(parts)

    def released(pieces: list[str]) -> str:
        deltas = [*(Delta(text=piece) for piece in pieces), Delta(finish_reason=end)]

        return text_of(asyncio.run(collected(GUARD, deltas, OTHER)))

    assert released(cut(text, places)) == released([text])


OTHER = Phrases(["blue heron"])


def test_a_value_does_not_wait_for_more_because_another_one_is_longer() -> None:
    text = "passwort=88%m4v-zyQP5VGZAb3GNy#D%%GBs#76f9x and the password is N9M3-5k#QZ9NEu%kYm-sNeA5-Px9rX9Y "
    end = Delta(finish_reason="length")
    released = {
        text_of(asyncio.run(collected(GUARD, [Delta(text=text[:place]), Delta(text=text[place:]), end])))
        for place in range(len(text))
    }
    assert released == {"passwort=[PASSWORD] and the password is [PASSWORD] "}


@pytest.mark.parametrize(
    "again",
    [V.replace("9", r"\u0039"), V.replace("#", "%23"), V.replace("m", "&#109;"), V.replace("Q", "Q\u200b")],
)
def test_it_is_found_again_in_escapes(again: str) -> None:
    text = f"password: {V} then {again}, ok"
    whole = said(GUARD, [text])
    assert whole == "password: [PASSWORD] then [PASSWORD], ok"
    assert said(GUARD, list(text)) == whole


def test_it_is_found_again_in_arguments_of_a_tool() -> None:
    text = f'{{"password": "{V}", "to": "{V}", "list": ["a", "{V}"]}}'
    whole = said(GUARD, [text], "tool_call")
    assert V not in whole
    for pieces in ways_to_cut(text, random.Random(1), 4):
        assert said(GUARD, pieces, "tool_call") == whole


def test_a_number_after_a_word_is_found_again() -> None:
    guard = Pii(entities=["US_SSN"])
    text = "My social security number is 536-22-8145; so 536-22-8145 and 536-22-81451."
    whole = said(guard, [text])
    assert whole.count("536-22-8145") == 1
    assert said(guard, list(text)) == whole


@pytest.mark.parametrize("value", ["a1b2c", "postgres", "correcthorse"])
def test_short_values_and_words_are_not_kept(value: str) -> None:
    again = FoundAgain()
    excerpt = Excerpt(is_json=False)
    excerpt.again = again
    assert said(GUARD, [f"postgres://u:{value}@h/db and {value}"]).endswith(f" {value}")


def test_a_stream_keeps_64_values_and_none_in_the_clear() -> None:
    rng = random.Random(5)
    values = ["".join(rng.choices("abcdefghjkmnpqrstuvwxyzABCDEFGH23456789", k=19)) + "7" for _ in range(80)]
    values = [value for value in values if "[PASSWORD]" in said(GUARD, [f"the password is {value}, ok"])]
    assert len(values) > MOST_VALUES
    shown = "".join(f"the password is {value}, ok\n" for value in values)
    state = state_after(GUARD, shown)
    again: FoundAgain = state["excerpt"].again
    assert len(again._numbers) == MOST_VALUES
    kept = repr({name: getattr(again, name) for name in vars(again)})
    assert not any(value[:4] in kept for value in values)
    whole = said(GUARD, [shown + " ".join(values)])
    assert [value in whole for value in values] == [False] * MOST_VALUES + [True] * (
        len(values) - MOST_VALUES
    )


def test_a_copy_of_a_streams_state_is_as_good() -> None:  # contract 3.19
    state = state_after(GUARD, f"the password is {V}, so ")
    copied = deepcopy(state)
    results = []
    for one in (copied, state):
        context = StreamContext(make_request())
        context.state = one
        context.text_diffs.append(f"{V} or")
        results.append(GUARD(Chunk(context, f"{V} or")))
    assert results[0] == results[1]
    assert copied["excerpt"].again is not state["excerpt"].again


def test_no_screen_reads_on_where_a_value_is_kept() -> None:
    assert GUARD.screen is not None
    assert GUARD.may_skip(state_after(GUARD, "the password is not here, so "))
    assert not GUARD.may_skip(state_after(GUARD, f"the password is {V}, so "))


def test_a_prompts_text_is_searched_so_too() -> None:
    guard = Secrets(prompt="redact")
    request = GenerationRequest(
        request_id="r", model="m", endpoint="chat", messages=({"role": "user", "content": PLAIN[1]},)
    )
    assert guard.on_request is not None
    texts: list[PromptText] = list(prompt_texts(guard.on_request(request)))
    assert not any(V in text.text for text in texts)


def test_random_streams_release_no_value_again() -> None:
    assert asyncio.run(run_streams(40, 1)) > 40
