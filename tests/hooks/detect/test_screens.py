"""A screen holds all text that its guard leaves undecided, and gives up where its guard may find a match."""

import random
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hooks.builtin.patterns import Patterns
from hooks.builtin.phrases import Phrases
from hooks.builtin.pii import Pii
from hooks.builtin.secrets import Secrets
from hooks.detect.detector import Detector, Match, going_on, screen_of
from hooks.detect.folding import FOLDS, Fold
from hooks.detect.readings import Reader
from hooks.detect.rules import Rule, RuleDetector
from hooks.loading.screen import Mark, Screen
from tests.helpers import examples
from tests.hooks.detect.automaton.test_automaton import FRAGMENTS, TEXTS
from tests.hooks.detect.random_patterns import ALPHABET, analysable


@pytest.fixture(autouse=True)
def mode() -> str:
    return "no hooks"


WORDS = [
    "the",
    "The ",
    "THE",
    "weir",
    "we",
    "a",
    " ",
    "  ",
    "\n",
    "ﬁsh",
    "fi",
    "-",
    ".",
    "é",
    "_",
    "*",
    "密码",
    "\u200b",
    "％３３",
    "％",
    "＆#",
    "~",
    "`",
    "\u3164",
    "t",
    "h",
    "e",
    "\r\n ",
    *(
        '"',
        '":',
        "]",
        "](",
        ")",
        "<",
        "</",
        "<b",
        ">",
        "\\",
        "\\n",
        "\\u00",
        "%",
        "%3",
        "&",
        "&#",
        "&am",
        ":",
        "7",
    ),
]
SHIPPED: dict[str, Detector] = {
    "pii": Pii().detector,
    "secrets": Secrets().detector,
    "patterns": Patterns(["T-[0-9]{6}", "(?i)weir[a-z]{0,3}"]).detector,
    "phrases": Phrases(["the weir", "the weir and", "we", "a fish", "密码", "12 3"]).detector,
    "phrases anywhere": Phrases(["the weir", "fish-"], word_boundaries=False).detector,
    "phrases as they are": Phrases(["the  weir", "The a"], fold=["lookalikes"]).detector,
}


@cache
def cached_screen(name: str) -> Screen:
    """The screen of a guard that ships: it takes a while to make."""
    screen = screen_of(SHIPPED[name])
    assert screen is not None
    return screen


def assert_screens(detector: Detector, screen: Screen, text: str) -> int:
    """Read `text` as a pipeline does. Returns the characters at which the screen gave up."""
    mark: Mark | None = screen.start
    taken: list[Match] = []
    start = num_given_up = 0
    for end in range(1, len(text) + 1):
        shown = text[:end]
        found, undecided = detector.scan(shown, start, False, taken)
        stepped = None if mark is None else screen.step(mark, shown[-1])
        if mark is not None and stepped is None:
            num_given_up += 1
        if stepped is not None:
            assert not found, (shown, found)
            assert end - undecided <= stepped.held <= end, (shown, undecided, stepped)
        start, taken = undecided, going_on(taken, found, undecided)
        mark = stepped
        if mark is None and not taken and not has_token(detector, shown, undecided):
            mark = resumed(screen, shown, undecided)
    return num_given_up


def has_token(detector: Detector, text: str, place: int) -> bool:
    """Whether the reading is shorter than the text where the detector reads it: a guard is then called on
    (`SpanGuard.may_skip`)."""
    if not isinstance(detector, Reader):
        return False
    left = max(0, place - detector._clear_span)
    return not detector._reading.view(detector.dressed(text), left, is_final=False).is_even


def assert_clears(detector: Detector, screen: Screen, text: str) -> None:
    """No match of the whole text begins where the screen has let text pass, until it gives up."""
    starts = [match.start for match in detector.scan(text)[0]]
    mark: Any = screen.start
    for end, char in enumerate(text, 1):
        if (mark := screen.step(mark, char)) is None:
            return
        assert not any(start < end - mark.held for start in starts), (text, end, mark)
    assert not starts or mark.held


def resumed(screen: Screen, text: str, undecided: int) -> Any:
    """The mark after `text`, from no more than the text that is in reach."""
    mark = screen.start if undecided <= screen.width else screen.anywhere
    for char in text[max(0, undecided - screen.width) : undecided]:
        mark = screen.step_over(mark, char)
    for char in text[undecided:]:
        if (stepped := screen.step(mark, char)) is None:
            return None
        mark = stepped
    return mark


@pytest.mark.parametrize("name", SHIPPED)
@given(text=st.lists(st.sampled_from([*FRAGMENTS, *WORDS]), max_size=14).map("".join))
def test_a_screen_of_a_guard_that_ships_holds_all_that_the_guard_does(name: str, text: str) -> None:
    assert_screens(SHIPPED[name], cached_screen(name), text)


@pytest.mark.parametrize("name", ["pii", "secrets"])
@given(st.sampled_from(TEXTS))
@examples(30)
def test_a_screen_gives_up_at_each_value(name: str, text: str) -> None:
    detector = SHIPPED[name]
    num_given_up = assert_screens(detector, cached_screen(name), f"{text} .")
    assert num_given_up or not detector.scan(text)[0]


@given(st.integers(0, 2**32))
@examples(150)
def test_a_screen_of_random_rules_lets_no_match_pass(seed: int) -> None:
    rng = random.Random(seed)
    rules = []
    for _ in range(rng.randint(1, 4)):
        behind = rng.choice([None, None, "a", "ab?", " b"])
        unless = rng.choice([None, None, "b"])
        near = rng.choice([None, None, "ab", "b"])
        limit = rng.choice([3, 6])
        rules.append(Rule("X", analysable(rng), near=near, behind=behind, unless=unless, max_length=limit))
    try:
        detector = RuleDetector(rules)
    except ValueError:
        return  # a rule that matches nothing, or longer texts alone
    if (screen := detector.screen()) is None:
        return
    for _ in range(5):
        assert_clears(detector, screen, "".join(rng.choices(ALPHABET, k=rng.randint(1, 14))))


@given(
    st.lists(st.text("ab -", min_size=1, max_size=5), min_size=1, max_size=4),
    st.text("abA -_.\n", max_size=14),
)
def test_a_screen_of_random_phrases_holds_all_that_they_do(phrases: list[str], text: str) -> None:
    folds: tuple[tuple[Fold, ...], ...] = (FOLDS, ("case",), ())
    for fold in folds:
        for is_bounded in (True, False):
            try:
                detector = Phrases(phrases, word_boundaries=is_bounded, fold=fold).detector
            except ValueError:
                return  # nothing is left of a phrase
            screen = screen_of(detector)
            assert screen is not None
            assert_screens(detector, screen, text)


@pytest.mark.parametrize("text", ["a ％３３％３１", "a ＆#51;＆#49;"])
def test_a_screen_gives_up_at_an_escape_in_wide_characters(text: str) -> None:
    assert assert_screens(SHIPPED["pii"], cached_screen("pii"), text)


def test_prose_needs_no_guard() -> None:
    text = "The harbour was quiet in the early morning, and a heron stood at the weir; nobody hurried it."
    for name in ("pii", "secrets"):
        assert assert_screens(SHIPPED[name], cached_screen(name), text) == 0


SOURCE = '''
def kept(items: dict[str, list[int]]) -> list[int]:
    """Those of 'a' & 'b' that are < 3, or whose rest is even."""
    return [n for n in items["a"] + items["b"] if n < 3 or n % 2 == 0 and n >> 1 != 5 & ~n]
'''


@pytest.mark.parametrize("name", SHIPPED)
def test_signs_of_programs_that_begin_no_token_need_no_guard(name: str) -> None:
    assert assert_screens(SHIPPED[name], cached_screen(name), SOURCE.replace("the", "a")) == 0
