"""Reading JSON piece by piece: the parts that are reported, and the first character that is no JSON."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hooks.json.reader import MAX_NUMBER, JsonReader
from tests.hooks.builtin.streams import PLACES, cut


@pytest.fixture(autouse=True)
def mode() -> str:
    return "no hooks"


class Record:
    """A listener that writes down what it hears, and ends the reading at the text `unwanted`."""

    def __init__(self, unwanted: str | None = None) -> None:
        self.parts: list[tuple[str, ...]] = []
        self.is_done = False
        self._unwanted = unwanted
        self._string = ""

    def begin(self, kind: str) -> None:
        self.parts.append(("begin", kind))
        self._string = ""

    def begin_key(self) -> None:
        self.parts.append(("key",))
        self._string = ""

    def add(self, piece: str) -> int:
        self._string += piece
        if self._unwanted is None or self._unwanted not in self._string:
            return 0
        self.is_done = True
        return len(self._string) - self._string.index(self._unwanted)

    def end_string(self) -> None:
        self.parts.append(("string", self._string))

    def end_number(self, text: str) -> None:
        self.parts.append(("number", text))

    def end_word(self, word: str) -> None:
        self.parts.append(("word", word))

    def go_on(self) -> None:
        self.parts.append((",",))

    def close(self) -> None:
        self.parts.append(("close",))


def read(pieces: list[str], unwanted: str | None = None) -> tuple[int, bool, list[tuple[str, ...]]]:
    """The number of good characters, whether the document is complete, and the reported parts."""
    record = Record(unwanted)
    reader = JsonReader(record)
    num_good = 0
    for piece in pieces:
        taken = reader.feed(piece)
        num_good += taken
        if taken < len(piece):
            break
    return num_good, reader.finish(), record.parts


def test_each_part_is_reported_in_its_order() -> None:
    text = ' {"a\\n": [1.5e3, true], "\\ud83d\\ude00": ""} '
    num_good, is_complete, parts = read([text])
    assert (num_good, is_complete) == (len(text), True)
    assert parts == [
        ("begin", "object"),
        ("key",),
        ("string", "a\n"),
        ("begin", "array"),
        ("begin", "number"),
        ("number", "1.5e3"),
        (",",),
        ("begin", "boolean"),
        ("word", "true"),
        ("close",),
        (",",),
        ("key",),
        ("string", "😀"),
        ("begin", "string"),
        ("string", ""),
        ("close",),
    ]


@pytest.mark.parametrize(
    ("good", "rest"),
    [
        ("", "x"),
        ("[1,", "]"),
        ('{"a"', ",1}"),
        ('{"a":1,', "}"),
        ("0", "1"),
        ("1.", "e1"),
        ("nul", "L"),
        ('"a', "\n"),
        ('"\\', "x"),
        ('"\\u00', "g0"),
        ("1 ", "2"),
        ("1" * MAX_NUMBER, "1"),
    ],
)
def test_reading_ends_at_the_first_character_that_is_no_json(good: str, rest: str) -> None:
    for pieces in ([good + rest], list(good + rest)):
        assert read(pieces)[:2] == (len(good), False)


def test_a_listener_ends_the_reading_within_a_string() -> None:
    for pieces in (['["a', 'bcd"]'], ['["abcd"]'], list('["abcd"]')):
        assert read(pieces, unwanted="b")[0] == len('["a')
    assert read(list('"\\u0062c"'), unwanted="b")[0] == len('"\\u006')


def test_half_a_surrogate_pair_is_a_character_of_its_own() -> None:
    assert read(['"\\ud83dx\\ude00"'])[2][-1] == ("string", "\ud83dx\ude00")


def test_a_text_is_blank_until_a_value_begins() -> None:
    reader = JsonReader(Record())
    assert reader.feed(" \n") == 2
    assert reader.is_blank
    reader.feed("[")
    assert not reader.is_blank


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(VALUES, st.booleans(), PLACES)
def test_no_cut_changes_what_is_read(value: Any, ensure_ascii: bool, places: list[int]) -> None:
    text = json.dumps(value, ensure_ascii=ensure_ascii)
    whole = read([text])
    assert whole[:2] == (len(text), True)
    assert read(cut(text, places)) == whole
