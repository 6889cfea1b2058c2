"""Patterns: what they match in a stream is what they match in the whole text; what is held has a bound."""

import random
import re
from typing import Any

import pytest
import regex
from hypothesis import assume, given
from hypothesis import strategies as st

from hooks.builtin.patterns import Patterns
from hooks.decisions.failure import HookError
from hooks.detect.detector import Match
from hooks.loading.loader import HookLoadError, HookSpec, load_hook
from tests.helpers import examples, finish_of, ids_of, text_of
from tests.hooks.builtin.streams import PLACES, Watch, cut, replaced, run, said
from tests.hooks.detect.random_patterns import ALPHABET, analysable

TICKET = {"ticket": r"\bT-\d{3,6}\b"}
TEXT = "See T-123, T-1234567 and T-4567."


@pytest.mark.parametrize("cuts", [[], [5, 8, 10, 11, 29], range(40)])
def test_each_action_is_the_same_wherever_the_stream_is_cut(cuts: Any) -> None:
    pieces = cut(TEXT, cuts)
    assert said(Patterns(TICKET), pieces) == "See [ticket], T-1234567 and [ticket]."
    assert said(Patterns(TICKET, template="#"), pieces) == "See #, T-1234567 and #."
    assert said(Patterns(TICKET, action="suppress"), pieces) == "See , T-1234567 and ."
    out = run(Patterns(TICKET, action="terminate", text="no."), pieces)
    assert (text_of(out), finish_of(out)) == ("See no.", ("content_filter", "ticket"))
    assert said(Patterns(TICKET, channels=["tool_call"]), pieces) == TEXT


def test_a_list_of_patterns_has_one_entity() -> None:
    assert said(Patterns([r"\d{2}", "a{1,3}"]), list("a 12 aaaa")) == "[pattern] [pattern] [pattern][pattern]"


def test_a_delimited_pattern_matches_as_finditer_does() -> None:
    assert said(Patterns({"q": '".{0,20}?"'}), list('"a" b "c" d')) == "[q] b [q] d"


def test_what_overlaps_is_one() -> None:
    patterns = {"long": "bc{1,9}d", "short": "abc"}
    for pieces in (["abcccd"], list("abcccd"), ["abc", "ccd"]):
        assert said(Patterns(patterns), pieces) == "[short]"


def test_only_what_could_still_match_is_held() -> None:
    detector = Patterns({"card": r"(?<!\d)\d{4}(?: \d{4}){3}(?!\d)", "not": r"foo(?!bar)"}).detector
    for text, held in [
        ("in 2024", "2024"),
        ("in 2024 we", ""),
        ("in 20245", ""),
        ("4111 1111 1111 1111", "4111 1111 1111 1111"),  # another digit would make it none
        ("a foob", "foob"),
        ("a foobs", ""),
    ]:
        assert text[detector.scan(text, 0, False)[1] :] == held


def test_a_pattern_without_a_bound_needs_a_limit() -> None:
    with pytest.raises(ValueError, match=r"has no bound: bound its repeats.* or give max_length"):
        Patterns(["<.*>"])
    for limit in (8, {"tag": 8}):
        watch = Watch(Patterns({"tag": "<.*?>"}, max_length=limit))
        assert said(watch, list("<a> <" + "b" * 50 + "> <123456> <1234567>")) == (
            "[tag] <" + "b" * 50 + "> [tag] <1234567>"
        )
        assert watch.most_held == 7


@pytest.mark.parametrize("pattern", [r"(?:x\R){6}y", r"x\R", r"\R{2}", r"(?<=x\R)y"])
def test_a_line_break_may_be_of_two_characters(pattern: str) -> None:
    for between in ("\r\n", "\n", "\r"):
        text = f"x{between}" * 6 + f"y{between}{between}z"
        expected = regex.sub(pattern, "[pattern]", text)
        assert expected != text
        for end in range(len(text)):
            assert said(Patterns([pattern]), [text[:end], text[end:]]) == expected


def test_a_search_that_takes_too_long_fails_the_request() -> None:
    guard = Patterns([r"(?:a|aa|aaa){1,60}(?<=c)b"], timeout=0.05)
    with pytest.raises(HookError):
        said(guard, ["a" * 80 + "b"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "missing 1 required positional argument"),
        ({"patterns": []}, "there is nothing to look for"),
        ({"patterns": "a"}, "patterns: Input should be an object or Input should be a valid array"),
        ({"patterns": ["(a"]}, "missing )"),
        ({"patterns": ["a+"]}, "has no bound"),
        ({"patterns": ["a{2,}"]}, "has no bound"),
        (
            {"patterns": ["hunter2"], "max_length": 6},
            "max_length: a match of pattern 'hunter2' has 7 characters",
        ),
        ({"patterns": ["(ab|c{3}+d?)(?=x)y*e+"], "max_length": 2}, "has 3 characters or more"),
        ({"patterns": ["a"], "max_length": {"y": 3}}, "max_length names unknown patterns: y"),
        ({"patterns": [r"\X"]}, "cannot be looked for in a stream"),
        ({"patterns": ["(?:foo){e<=1}"]}, "{e<=1} cannot be looked for"),
        ({"patterns": ["(?r)foo"]}, "(?r cannot be looked for"),
        ({"patterns": ["(?:ab(*SKIP)c|b{1,3}d)"]}, "(* cannot be looked for"),
        ({"patterns": ["a(?=b(?!c))"]}, "(?! cannot be within another assertion"),
    ],
)
def test_what_cannot_be_guarded_keeps_the_server_from_starting(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(HookLoadError, match=re.escape(says)):
        load_hook(HookSpec("patterns", arguments))


@examples(300)
@given(st.integers(0, 2**32), st.text(ALPHABET, max_size=20), PLACES)
def test_a_stream_has_the_matches_of_the_whole_text(seed: int, text: str, places: list[int]) -> None:
    rng = random.Random(seed)
    sources = [analysable(rng) for _ in range(3)]
    found = [list(regex.finditer(source, text)) for source in sources]
    # Where a pattern likes best to match nothing, finditer tries again for more, and a guard does not.
    assume(all(match[0] for matches in found for match in matches))
    matches = [Match(m.start(), m.end(), f"p{i}", i) for i, matches in enumerate(found) for m in matches]
    guard = Watch(Patterns({f"p{i}": source for i, source in enumerate(sources)}, timeout=600))
    out = run(guard, cut(text, places))
    assert text_of(out) == replaced(text, matches), sources
    assert guard.most_held <= guard.guard.detector.longest


@examples(200)
@given(st.text("<>a\n", max_size=30), st.integers(2, 9), PLACES)
def test_with_a_limit_a_stream_has_the_matches_within_it(text: str, limit: int, places: list[int]) -> None:
    pattern, matches, place = regex.compile("<.*>"), [], 0
    while place < len(text):
        found = pattern.match(text, place, place + limit)
        if found:
            matches.append(Match(found.start(), found.end(), "tag"))
        place = found.end() if found else place + 1
    guard = Patterns({"tag": "<.*>"}, max_length=limit)
    assert said(guard, cut(text, places)) == replaced(text, matches)


def test_withheld_tokens_are_withheld_with_their_text() -> None:
    pieces = ["See ", "T-", "12", "3", ", ok"]
    assert ids_of(run(Patterns(TICKET), pieces))[:2] == [0, 4]
