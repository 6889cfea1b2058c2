"""Rules: the conditions of a match, and the part of a text that more text could still decide."""

from typing import Any

import pytest

from hooks.detect.detector import Match
from hooks.detect.rules import BEGIN, END, Also, Rule, RuleDetector, chosen, words


@pytest.fixture(autouse=True)
def mode() -> str:
    return "no hooks"


NUMBER = rf"{BEGIN}\d{{4}}{END}"


def found(text: str, pattern: str = NUMBER, **conditions: Any) -> list[str]:
    matches, undecided = RuleDetector([Rule("NUMBER", pattern, **conditions)]).scan(text)
    assert undecided == len(text)
    return [text[match.start : match.end] for match in matches]


def test_a_number_is_no_part_of_a_longer_word_or_number() -> None:
    assert found("1234, a1234, 12345, 1234-5, 3.1234, (5678)") == ["1234", "5678"]


def test_a_check_and_a_length_decide_on_the_matched_text() -> None:
    assert found("1234 1111", check=lambda text: text != "1111") == ["1234"]
    assert found("1234 2111", length=lambda text: 2 if text[0] == "1" else 0) == ["12"]


def test_required_words_may_be_near_and_in_any_case() -> None:
    near = words("pin", "code")
    assert found("My PIN is 1234", near=near) == ["1234"]
    assert found("1234 is my pin, spins 5678", near=near) == ["5678"]
    assert found("spins 5678", near=near) == []
    assert found("pin" + " " * 100 + "1234", near=near) == []


def test_the_text_directly_before_a_match_is_required_or_forbidden() -> None:
    assert found("pin: 1234 id: 5678", behind="PIN: ") == ["1234"]
    assert found("pin: 1234 id: 5678", unless="pin: ") == ["5678"]


def test_a_second_length_is_asked_only_after_its_own_text() -> None:
    also = Also("pin=", len)
    rule = Rule(
        "ID", r"(?<==)\d{1,4}+", length=lambda text: 4 * (len(text) == 4), behind="(?:pin|no)=", also=also
    )
    matches, _ = RuleDetector([rule]).scan("pin=12, no=34, no=5678, pin=9012")
    assert [match.start for match in matches] == [4, 18, 28]


def test_a_limit_cuts_a_pattern_without_a_bound() -> None:
    assert found("<ab> <abcdef>", "<.*?>", max_length=4) == ["<ab>"]


def test_a_match_goes_on_until_its_closing_pattern_or_the_end() -> None:
    assert found("a BEGIN b c END d", "BEGIN", until="END") == ["BEGIN b c END"]
    assert found("a BEGIN b c", "BEGIN", until="END") == ["BEGIN b c"]
    detector = RuleDetector([Rule("KEY", "BEGIN", until="END")])
    (taken,), _ = detector.scan("a BEGIN b", 0, False)
    assert taken == Match(2, 9, "KEY")
    assert detector.scan("a BEGIN b END c", 9, False, [taken])[0] == [Match(2, 13, "KEY")]


@pytest.mark.parametrize(
    ("text", "decided"),
    [("no AB12", "no "), ("no AB1234", "no "), ("no AB1234 ", "no AB1234 "), ("no 12 ", "no 12 ")],
)
def test_only_a_match_that_more_text_decides_is_left_open(text: str, decided: str) -> None:
    detector = RuleDetector([Rule("ID", rf"{BEGIN}AB\d{{4}}{END}")])
    matches, undecided = detector.scan(text, 0, False)
    assert text[:undecided] == decided
    assert bool(matches) == (text == "no AB1234 ")
    assert len(text) - undecided <= detector.longest


def test_rules_are_chosen_by_entity() -> None:
    rules = [Rule("A", "a"), Rule("B", "b"), Rule("A", "aa")]
    assert chosen(rules, None) == rules
    assert chosen(rules, ["A"]) == [rules[0], rules[2]]
    with pytest.raises(ValueError, match="entities are some of A, B, not C"):
        chosen(rules, ["A", "C"])


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ([], "nothing to look for"),
        ([Rule("A", "a+")], "has no bound"),
        ([Rule("A", "abc", max_length=2)], "has 3 characters or more"),
        ([Rule("A", "(?=a)")], "has no character"),
    ],
)
def test_rules_that_cannot_be_searched_in_a_stream_are_refused(rules: list[Rule], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        RuleDetector(rules)
