"""Families of keys: each is found in a neutral sentence, and so wherever a stream of it is cut."""

import random
import re
from collections.abc import Iterator

import pytest

from benchmarks.cases.strings import drawn
from benchmarks.detection import cut_by
from hooks.builtin.secret_rules.issuers import FAMILIES, WORDED, Family
from hooks.builtin.secret_rules.keys import is_key, is_unlike_words
from hooks.builtin.secrets import Secrets
from tests.helpers import draws
from tests.hooks.builtin.streams import said, ways_to_cut

ALL = Secrets()
ENDINGS = {"sidekiq": "@gems.contribsys.com"}
"""The text that must follow a key."""


@pytest.fixture(autouse=True)
def mode() -> str:
    return "in-process"


def keys(family: Family, rng: random.Random, count: int) -> Iterator[tuple[str, str]]:
    """The text that stays before a key, and a key that is no placeholder by chance."""
    is_shown = is_unlike_words if family.check else is_key
    while count:
        key = drawn(family.form, rng)
        if is_shown(key):
            count -= 1
            yield drawn(family.behind, rng) if family.behind else "", key


@pytest.mark.parametrize("family", FAMILIES, ids=lambda one: one.issuer)
def test_a_key_in_a_neutral_sentence_is_found(family: Family) -> None:
    rng = random.Random(family.issuer)
    for before, key in keys(family, rng, draws(10)):
        after = ENDINGS.get(family.issuer.lower(), "")
        text = f"Use {before}{key}{after}, then go."
        start = 4 + len(before)
        found = cut_by(ALL.detector, text)
        assert any(begin <= start and end >= start + len(key.rstrip("=")) for begin, end, _ in found), text


@pytest.mark.parametrize("family", FAMILIES, ids=lambda one: one.issuer)
def test_where_a_key_is_cut_changes_nothing(family: Family) -> None:
    rng = random.Random(family.issuer)
    ((before, key),) = keys(family, rng, 1)
    text = f"Use {before}{key}{ENDINGS.get(family.issuer.lower(), '')}, then go."
    whole = said(ALL, [text])
    assert key not in whole
    for pieces in ways_to_cut(text, rng, 2):
        assert said(ALL, pieces) == whole


@pytest.mark.parametrize("family", FAMILIES, ids=lambda one: one.issuer)
def test_a_placeholder_in_the_form_of_a_key_is_none(family: Family) -> None:
    rng = random.Random(family.issuer)
    ((before, key),) = keys(family, rng, 1)
    place = min(len(key) // 3, 12)
    for rest in ("x" * (len(key) - place), "-your-key-here", "...", "*" * 20, "<key>"):
        text = f"Use {before}{key[:place]}{rest} there."
        assert cut_by(ALL.detector, text) == [], text


def test_each_family_is_one_line_in_order() -> None:
    entities = [family.entity for family in FAMILIES]
    assert entities == sorted(entities)
    assert all(re.fullmatch(r"[A-Z][A-Z_\d]+", entity) for entity in entities)
    assert [*WORDED] == sorted(WORDED)


FRAMES = (
    "{word}_token = '{key}'",
    '{{"{word}ApiKey": "{key}"}}',
    "{word}: {key}",
    "The {word} key is {key}.",
    "export {upper}_KEY={key}\n",
)


@pytest.mark.parametrize("words", WORDED)
def test_a_key_after_its_issuers_name_is_found(words: str) -> None:
    rng = random.Random(words)
    word = drawn(words, rng)
    for form in WORDED[words]:
        key = drawn(form, rng)
        while not is_key(key.replace("A" * 10, "")) or not any(map(str.isdigit, key)):
            key = drawn(form, rng)
        for frame in FRAMES:
            text = frame.format(word=word, upper=word.upper(), key=key)
            start = text.index(key)
            assert any(a <= start and b >= start + len(key) for a, b, _ in cut_by(ALL.detector, text)), text


@pytest.mark.parametrize(
    "text",
    [
        "netlify/actions@3f0b1c2d4e5f60718293a4b5c6d7e8f901234567 runs first",
        'file = "datadog.whl", hash = "sha256:57c4878d3a8351f652792cdba78050274789dcc44313adec096e87f9d3ca"',
        "discord = 000000000000000000",
        "heroku stack heroku-22 of 2022-06-13",
    ],
)
def test_another_value_near_an_issuers_name_is_none(text: str) -> None:
    assert cut_by(ALL.detector, text) == []
