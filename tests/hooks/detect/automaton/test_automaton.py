"""The automaton of rules finds what searching for every rule everywhere finds, and keeps a bounded memory."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import pii_samples, secret_samples
from benchmarks.detection import samples_of
from hooks.builtin.pii import Pii
from hooks.builtin.secrets import Secrets
from hooks.detect.automaton import states
from hooks.detect.automaton.positions import MOST_COPIES
from hooks.detect.automaton.states import Automaton
from hooks.detect.detector import Findings, Match, going_on
from hooks.detect.rules import Rule, RuleDetector
from tests.helpers import examples
from tests.hooks.detect.random_patterns import ALPHABET, analysable


@pytest.fixture(autouse=True)
def mode() -> str:
    return "no hooks"


def both(rules: list[Rule]) -> tuple[RuleDetector, RuleDetector]:
    """A detector, and one that searches for every rule everywhere, without the automaton."""
    plain = RuleDetector(rules)
    plain._everywhere = plain._searchers
    plain._automaton = plain._worded = Automaton([None] * len(rules))
    plain._near_words = None
    return RuleDetector(rules), plain


def rules_of(guard: Pii | Secrets) -> list[Rule]:
    return [searcher.rule for searcher in guard.detector._detector._searchers]  # type: ignore[attr-defined]


SHIPPED = {"pii": both(rules_of(Pii())), "secrets": both(rules_of(Secrets()))}
TEXTS = [s.text for kinds in (pii_samples.KINDS, secret_samples.KINDS) for _, s in samples_of(kinds, 3, 4)]
FRAGMENTS = [
    *("password", "pwd", "secret", "token", "aws", "phone", "ssn", "nhs", " is ", ": ", "=", " = ", '"', "'"),
    *("sk-", "ghp_", "eyJ", "AKIA", "xoxb-", "://", "@", "SharedAccessKey=", "&sig=", "Server=x;", "Q~"),
    *("-----BEGIN RSA PRIVATE KEY-----\n", "-----END RSA PRIVATE KEY-----", "MIIEpAIBAAKCAQEA7f3K9mQ2xT8v"),
    *("4111", "1111", "12", "3", "756", "2024-05-06", "+49", "0049", "DE89", "GB", "XY", "fe80", "::", "1.2"),
    *(
        "zoe",
        "millrace",
        ".example",
        ".com",
        "7f3K9mQ2xT8vB4nL6pR1",
        "a1b2c3d4",
        "RSSMRA85T10A562S",
        "é",
        "密码",
    ),
    *(" ", "\n", "-", ".", ",", "/", "(", ")", "The harbour was quiet. ", "_", "\\n", "٣"),
]


def scans(
    detectors: tuple[RuleDetector, RuleDetector], text: str, ends: list[int]
) -> Iterator[list[Findings]]:
    """Scan the text with both detectors as it grows to each of `ends`, and to its end."""
    start = 0
    taken: list[Match] = []
    for end in [*ends, None]:
        made = [one.scan(text[:end], start, end is None, taken) for one in detectors]
        yield [(sorted(matches), undecided) for matches, undecided in made]
        matches, start = made[1]
        taken = going_on(taken, matches, start)


def assert_equal(detectors: tuple[RuleDetector, RuleDetector], text: str, ends: list[int]) -> None:
    for fast, plain in scans(detectors, text, ends):
        assert fast == plain


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[str, list[int]]:
    """A text made of whole values, parts of them and what stands around them, and the ends of its pieces."""
    part = st.builds(
        lambda text, i, n: text[i : i + n], st.sampled_from(TEXTS), st.integers(0, 60), st.integers(1, 80)
    )
    text = "".join(draw(st.lists(st.sampled_from(FRAGMENTS) | part, max_size=12)))
    return text, sorted(draw(st.sets(st.integers(0, len(text)), max_size=12)))


@pytest.mark.parametrize("name", SHIPPED)
@examples(400)
@given(cut=cut_texts())
def test_shipped_rules_find_the_same_with_and_without_the_automaton(
    name: str, cut: tuple[str, list[int]]
) -> None:
    assert_equal(SHIPPED[name], *cut)


@pytest.mark.parametrize("name", SHIPPED)
def test_made_texts_are_found_character_by_character_with_and_without_the_automaton(name: str) -> None:
    rng = random.Random(7)
    for text in rng.sample(TEXTS, 12):
        text = text[:400]
        assert_equal(SHIPPED[name], text, list(range(len(text))))


@examples(400)
@given(st.randoms(use_true_random=False))
def test_patterns_find_the_same_with_and_without_the_automaton(rng: random.Random) -> None:
    # A lazy repeat is left out: `regex` may report it as open where no text can make it a match.
    drawn = [pattern for pattern in (analysable(rng) for _ in range(4)) if "}?" not in pattern]
    rules = [Rule(str(i), drawn[i], max_length=rng.choice([None, 3, 9])) for i in range(len(drawn))]
    rules.append(Rule("behind", "[ab]{1,9}", behind=rng.choice(["b ", "a?", "(?:a|b){1,3}\n", "^a"])))
    try:
        detectors = both(rules)
    except ValueError:  # no match of a pattern has a character
        return
    text = "".join(rng.choices(ALPHABET, k=rng.randint(0, 30)))
    assert_equal(detectors, text, sorted(rng.choices(range(31), k=8)))


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"(a|b)\1x", "aax abx", ["aax"]),
        (r"(?i)(a)\1x", "aAx", ["aAx"]),
        (r"(?P<it>ab?)-(?P=it)x", "ab-abx", ["ab-abx"]),
        (r"(a)?b(?(1)c|d)", "abc bd ad", ["abc", "bd"]),
        (r"x\Ry", "x\r\ny x\ny", ["x\r\ny", "x\ny"]),
        (r"(?<=to: |cc )\w{2,4}(?=,)", "to: ann, cc bob, dan,", ["ann", "bob"]),
        (r"(?<=(?i:a))b(?s:.)c", "Ab\nc", ["b\nc"]),
        (r"[(?<=]a", "(a =a", ["(a", "=a"]),
        (r"abcd\d{2}(?!\d)", "abcd12 abcd123", ["abcd12"]),
        (r"(?:(?<!x)a)?b", "xab", ["b"]),
        (r"ſ|(?i)k", "ſ K k", ["ſ", "K", "k"]),
        (r"(?a:x(?:\w)y)", "xéy", ["xéy"]),
        (r"(?a:x(?:\w)\w)", "xéy xéé", ["xéy"]),
    ],
)
def test_every_form_of_a_pattern_is_found(pattern: str, text: str, expected: list[str]) -> None:
    detectors = both([Rule("A", pattern)])
    assert [text[m.start : m.end] for m in detectors[0].scan(text)[0]] == expected
    assert_equal(detectors, text, list(range(len(text))))


def test_a_rule_is_searched_only_where_the_automaton_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = RuleDetector(rules_of(Pii()))
    woken: list[str] = []
    for searcher in detector._searchers:
        monkeypatch.setattr(searcher, "found_at", lambda *_, of=searcher.rule.entity: woken.append(of) or [])
    detector.scan("The harbour was quiet: nobody had asked for him, or would have known him. " * 9)
    assert woken == []
    detector.scan("By 10:30 zoe@millrace.example had paid.")
    assert woken == ["EMAIL_ADDRESS"]


def test_the_automaton_forgets_its_steps_before_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "MAX_STEPS", 50)
    detectors = both(rules_of(Pii()))
    for text in TEXTS[:20]:
        assert_equal(detectors, text[:200], list(range(0, 200, 5)))
        assert len(detectors[0]._automaton._states) <= 51


def test_long_repeats_take_few_positions() -> None:
    detector = RuleDetector([Rule("A", "(?:[ab]{1,1000}c){1,500}", max_length=9)])
    assert detector._automaton._positions.count <= 2 * MOST_COPIES + 3
