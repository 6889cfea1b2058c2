"""Stop strings in a text that is still growing."""

from hypothesis import given
from hypothesis import strategies as st

from engine.text.text_search import find_stop, num_held

TEXTS = st.text(st.sampled_from("abcé你🎉 ."), max_size=20)


STOPS = st.lists(st.text(st.sampled_from("abcé你 ."), min_size=1, max_size=4), max_size=3)


@given(TEXTS, STOPS)
def test_only_text_that_could_become_a_stop_string_is_held(text: str, stop: list[str]) -> None:
    held = num_held(text, stop)
    starts = {s[:n] for s in stop for n in range(1, len(s))}
    assert held == max((n for n in range(1, len(text) + 1) if text[-n:] in starts), default=0)


def test_the_stop_string_that_ends_first_is_found() -> None:
    assert find_stop("xabcd", ["abcd", "bc"], 0) == (2, "bc")
    assert find_stop("xabc", ["bc", "abc"], 0) == (1, "abc")
    assert find_stop("abab", ["ab"], 3) == (2, "ab"), "an earlier one does not count"
    assert find_stop("xyz", ["ab"], 0) is None
