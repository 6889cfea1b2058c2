"""Values of the prompt that an answer may repeat: which are found, and what the search costs."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hooks.detect import known_texts
from hooks.detect.known_texts import KnownTexts
from hooks.detect.word_index import WordIndex
from tests.helpers import make_request

LONGEST = 256


def known_in(*texts: str) -> KnownTexts:
    messages = tuple({"role": "user", "content": text} for text in texts)
    return KnownTexts(make_request(messages=messages), {"user"}, lambda text: text, LONGEST)


SHORT = st.text(st.sampled_from("ab1_.@-: \né²"), max_size=24)


@given(st.lists(SHORT, max_size=3), st.lists(SHORT, max_size=8))
def test_the_index_knows_what_a_search_knows(texts: list[str], values: list[str]) -> None:
    searched, indexed = known_in(*texts), known_in(*texts)
    with pytest.MonkeyPatch.context() as patch:
        knows = [value in searched for value in values]
        patch.setattr(known_texts, "_SEARCHES", 0)
        # A value without words stands nowhere by itself once there are many values.
        expected = [
            is_known and any(map(str.isalnum, value.replace("_", "x")))
            for value, is_known in zip(values, knows, strict=True)
        ]
        assert [value in indexed for value in values] == expected


def test_two_messages_have_no_value_together() -> None:
    assert "ab" not in known_in("a", "b")
    assert "a\0b" not in known_in("a", "b")


def test_many_values_are_not_searched_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[str] = []
    search = known_texts._places

    def counted(text: str, value: str) -> Iterator[int]:
        searches.append(value)
        return search(text, value)

    monkeypatch.setattr(known_texts, "_places", counted)
    values = [f"ada{i}@initech.org" for i in range(2000)]
    known = known_in(*(f"Ask {value}, not x{value}x." for value in values))
    assert all(value in known for value in values)
    assert not any(f"x{value}" in known for value in values)
    assert len(searches) < len(values)


def test_a_value_that_stands_in_very_many_longer_ones_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    goes_on = known_texts._goes_on

    def counted(*about: object) -> bool:
        nonlocal looks
        looks += 1
        return goes_on(*about)  # type: ignore[arg-type]

    monkeypatch.setattr(known_texts, "_goes_on", counted)
    known = known_in("10.0.0.1x " * 50_000, "10.0.0.1")
    assert "10.0.0.1" in known
    assert "10.0.0" not in known
    assert "ada" not in known
    assert looks == known_texts._PLACES


def test_the_places_that_the_index_tries_are_bounded_by_the_text() -> None:
    text = "a.b " * 1000
    index = WordIndex(text)
    values = [f"a.b a.b a.b{'.' * i}" for i in range(1, 100)]
    assert [list(index.places(value)) for value in values] == [[]] * len(values)
    assert index._left == 0
