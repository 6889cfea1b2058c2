"""The analysis of a regular expression: its widths, its open matches, and the patterns that it refuses."""

import itertools
import random
from typing import Any

import pytest
import regex
from regex import _regex_core

from hooks.detect.automaton.regex_analysis import UNLIMITED, analyse, finder
from tests.hooks.detect.random_patterns import ALPHABET, analysable, random_pattern


@pytest.fixture(autouse=True)
def mode() -> str:
    return "no hooks"


@pytest.mark.parametrize(
    ("pattern", "shortest", "longest"),
    [
        ("", 0, 0),
        ("hunter2", 7, 7),
        (r"\d{3}-\d{2,4}", 6, 8),
        ("ab|c{3}|", 0, 3),
        (r"(?:ab?){2,3}", 2, 6),
        (r"(\w{1,9})=\1", 2, 19),
        (r"\bx\R$", 2, 3),
        (r"(?=abc)a(?<!xyz)", 1, 1),
        ("a+", 1, UNLIMITED),
        ("(?#comment)(?i)[]a-z]x*", 1, UNLIMITED),
    ],
)
def test_widths_are_counted_in_characters(pattern: str, shortest: int, longest: int) -> None:
    analysis = analyse(pattern)
    assert (analysis.shortest, min(analysis.longest, UNLIMITED)) == (shortest, longest)


def test_text_around_a_match_is_counted_too() -> None:
    assert analyse("a(?=bcd|e)").ahead == analyse("a").ahead + 3
    assert analyse("(?<!bc)a").behind == analyse("a").behind + 2


@pytest.mark.parametrize(
    ("pattern", "text", "place"),
    [
        ("hunter2", "a hunt", 2),
        ("hunter2", "a hunter3", 9),
        (r"foo\b", "a foo", 2),
        ("foo$", "foo\n", 0),
        ("a(?!b)", "xa", 1),
        ("(?>a|ab)c", "ab", 2),
        (r"(?>a\b|ab)c", "ab", 0),
        (r"(?a:a\b.b)", "aé", 0),
        (r"(?a:(?>a\b|b).b)", "aé", 0),
    ],
)
def test_an_open_match_begins_where_more_text_decides(pattern: str, text: str, place: int) -> None:
    found = finder(analyse(pattern).opened, None, partial=True)(text, 0)
    assert (found.start() if found else len(text)) == place


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(a", r"missing \)"),
        (r"\X", r"\\X cannot be looked for in a stream"),
        ("(?(?=a)ab|cd)", r"\(\?\(\? cannot be looked for in a stream"),
        ("(?r)foo", r"\(\?r cannot be looked for in a stream"),
        ("a(?=b(?!c))", r"\(\?! cannot be within another assertion"),
        (r"(?<!a\b)c", r"\\b cannot be within another assertion"),
    ],
)
def test_a_pattern_that_cannot_be_searched_in_a_stream_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        analyse(pattern)


def test_a_search_has_a_time_limit() -> None:
    with pytest.raises(TimeoutError):
        finder(r"(?:a|aa|aaa){1,60}c", 0.01)("a" * 80 + "b", 0)


def spans_at(pattern: Any, text: str, place: int) -> tuple[int, int] | None:
    found = pattern.match(text, place)
    return found.span() if found and found[0] else None


def test_what_is_not_open_does_not_depend_on_what_follows() -> None:
    """By trying every text of up to four characters that could."""
    rng = random.Random(20)
    endings = ["".join(c) for size in range(5) for c in itertools.product(ALPHABET, repeat=size)]
    num_open = 0
    for _ in range(400):
        source = analysable(rng)
        analysis, pattern = analyse(source), regex.compile(source)
        text = "".join(rng.choices(ALPHABET, k=rng.randint(0, 5)))
        found = regex.compile(analysis.opened).search(text, partial=True)
        undecided = found.start() if found else len(text)
        num_open += undecided < len(text)
        for place in range(undecided):
            outcomes = {spans_at(pattern, text + ending, place) for ending in endings}
            assert len(outcomes) == 1, (source, text, place)
    assert num_open > 100


def test_widths_are_those_that_regex_works_out() -> None:
    rng = random.Random(21)
    for _ in range(500):
        pattern = random_pattern(rng)
        source = _regex_core.Source(pattern)
        info = _regex_core.Info(0, source.char_type, {})
        try:
            width = _regex_core._parse_pattern(source, info).max_width()
            longest = analyse(pattern).longest
        except (ValueError, regex.error):
            continue
        assert longest >= width, pattern
    assert analyse(r"(['\"])[^\n]{0,9}\1(?#c)\p{Lu}{2}[]x-]?\x41|b{,3}").longest == 15
    assert analyse(r"(?<=pass(?:word)?: )\w{1,9}(?! no)").behind >= 10
