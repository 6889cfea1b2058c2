"""Streams are cut into the same windows whatever the chunks, and no window ends too late."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hooks.detect.windows import Cutter, Windows, make_windows
from tests.hooks.builtin.streams import PLACES, cut

PARTS = ["a", "word ", " ", "\n", ". ", "!", "longer words ", "x" * 40, " " * 20, "世界。", '." ', "🎉"]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=30).map("".join)


def letters(text: str) -> int:
    """As many tokens as a model might see: none in white space, several in long words."""
    return (len(text.strip()) + 2) // 3


@st.composite
def windows(draw: st.DrawFn) -> Windows:
    unit: Any = draw(st.sampled_from(["characters", "tokens", "sentences"]))
    size = draw(st.integers(1, 12))
    return make_windows(unit, size, draw(st.integers(1, size) | st.none()), letters)


@pytest.fixture(autouse=True)
def mode() -> str:
    return "no hooks"


def seen(windows: Windows, pieces: list[str]) -> tuple[list[tuple[int, int]], list[int], int]:
    """The windows, which part of the text was free after each piece, and the most that was not."""
    cutter, text, start = Cutter(windows), "", 0
    found: list[tuple[int, int]] = []
    free: list[int] = []
    most = 0
    for i, piece in enumerate([*pieces, ""]):
        text += piece
        places, start = cutter.cut(text, start, is_final=i == len(pieces))
        found += places
        free.append(start)
        most = max(most, len(text) - start)
    return found, free, most


@given(windows(), TEXTS, PLACES)
def test_windows_do_not_depend_on_where_the_text_is_cut(
    windows: Windows, text: str, places: list[int]
) -> None:
    whole = seen(windows, [text])[0]
    assert seen(windows, cut(text, places))[0] == whole
    assert seen(windows, list(text))[0] == whole


@given(windows(), TEXTS)
def test_what_is_free_has_been_in_every_window_that_it_is_in(windows: Windows, text: str) -> None:
    places, free, _ = seen(windows, [text])
    assert free[-1] == len(text)
    for end in range(len(text) + 1):
        so_far, known, _ = seen_of(windows, text[:end])
        assert so_far == places[: len(so_far)]
        assert all(start >= known for start, _ in places[len(so_far) :])


def seen_of(windows: Windows, text: str) -> tuple[list[tuple[int, int]], int, str]:
    """Before the end has come."""
    places, start = Cutter(windows).cut(text, 0, is_final=False)
    return places, start, text


@given(windows(), TEXTS)
def test_every_character_is_in_a_window_and_none_in_one_that_adds_nothing(
    windows: Windows, text: str
) -> None:
    places, *_ = seen(windows, [text])
    assert [end for _, end in places] == sorted({end for _, end in places})
    covered = 0
    for start, end in places:
        assert start <= covered < end
        covered = end
    assert covered == len(text)


@given(windows(), TEXTS)
def test_no_more_is_held_than_it_says(windows: Windows, text: str) -> None:
    assert seen(windows, list(text))[2] <= windows.longest


def test_windows_of_characters_overlap_by_what_the_stride_leaves() -> None:
    assert seen(make_windows("characters", 10, 6), [str(i % 10) for i in range(24)])[0] == [
        (0, 10),
        (6, 16),
        (12, 22),
        (18, 24),
    ]


def test_a_window_that_ends_with_the_text_is_the_last() -> None:
    assert seen(make_windows("characters", 4, 2), ["abcdef"])[0] == [(0, 4), (2, 6)]


def test_windows_of_sentences_begin_and_end_with_sentences() -> None:
    text = 'One. Two! "Three?" Four\nfive 3.5 and 六。七'
    places, *_ = seen(make_windows("sentences", 2, 1), list(text))
    assert [text[start:end] for start, end in places] == [
        "One. Two! ",
        'Two! "Three?" ',
        '"Three?" Four\n',
        "Four\nfive 3.5 and 六。",
        "five 3.5 and 六。七",
    ]


def test_windows_of_tokens_take_whole_words_as_far_as_there_is_room() -> None:
    text = "one two  three sixsix seven"
    places, *_ = seen(make_windows("tokens", 4, 2, letters), list(text))
    assert [text[start:end] for start, end in places] == ["one two  three", "  three sixsix", " sixsix seven"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("words", 4, 2), "unit is characters or sentences, not 'words'"),
        (("tokens", 4, 2), "unit is characters or sentences, not 'tokens'"),
        (("characters", 4, 5), "stride is from 1 up to window"),
        (("characters", 4, 0), "stride is from 1 up to window"),
        (("characters", 0, None), "stride is from 1 up to window"),
    ],
)
def test_what_makes_no_windows_is_refused(arguments: tuple[str, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make_windows(*arguments)  # type: ignore[arg-type]
