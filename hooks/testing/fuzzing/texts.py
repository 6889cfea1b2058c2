"""Hypothesis strategies for texts that try to get past a guard.

The texts contain a guard's own phrases: split, disguised, in part, and with small changes. They also contain
long runs and unusual Unicode characters. Half a surrogate pair is not among them, because no engine can yield
it. An escaped surrogate pair is, because a model can write it in JSON.
"""

import json
import string
from collections.abc import Sequence
from functools import cache

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

HOMOGLYPHS = {"a": "а", "c": "с", "e": "е", "i": "і", "o": "о", "p": "р", "s": "ѕ", "x": "х", "y": "у"} | {
    chr(code): chr(code + 0xFEE0) for code in range(0x21, 0x7F) if chr(code) not in "aceiopsxy"
}
"""Look-alikes: Cyrillic letters, and full-width forms for all other characters of ASCII."""
WITHIN = ["\u200b", "\u00ad", "\u200d", "\ufeff", "\u0301", "\u0338", " ", "\n", "-", "."]
"""Characters that can be inside a word that people still can read."""
EDGES = ["\x00", "\x7f", "\x80", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff"]
"""The first and last characters of each length in UTF-8, and the neighbours of the surrogates."""
AWKWARD = ["🎉", "👩‍👩‍👧", "🇩🇪", "👍🏽", "e\u0301", "ﬁ", "İ", "ß", "ſ", "\\ud83c\\udf89", "\r\n"]
"""Characters of several code points, or with several code points in another case."""

MAX_RUN = 200
"""Most characters of a run."""

# Hypothesis's own strategy for characters first builds tables, which takes seconds and needs a folder.
characters = st.integers(0, 0x10F7FF).map(lambda n: chr(n if n < 0xD800 else n + 0x800))


def texts(phrases: Sequence[str]) -> SearchStrategy[str]:
    """Texts of some hundred characters that contain `phrases`."""
    words = st.text(string.ascii_lowercase + " .,\n", max_size=12)
    pieces = [words, st.sampled_from(EDGES + AWKWARD)]
    if phrases:
        phrase = st.sampled_from(sorted(set(phrases), key=len))
        pieces += [phrase, phrase.flatmap(disguised), phrase.flatmap(nearly), phrase.flatmap(runs)]
    pieces += [runs("a"), st.lists(characters, max_size=5).map("".join)]
    return st.lists(st.one_of(pieces), max_size=6).map("".join)


@cache
def disguised(phrase: str) -> SearchStrategy[str]:
    """Texts that look like the phrase to a reader, but differ from it."""
    place = st.integers(0, len(phrase) - 1)
    change = st.sampled_from([_homoglyph, str.swapcase, _escaped])
    return st.one_of(
        st.builds(lambda i, x: phrase[:i] + x + phrase[i:], place, st.sampled_from(WITHIN)),
        st.builds(lambda i, other: phrase[:i] + other(phrase[i]) + phrase[i + 1 :], place, change),
        change.map(lambda other: "".join(map(other, phrase))),
        st.sampled_from(WITHIN).map(lambda x: x.join(phrase)),
    )


@cache
def nearly(phrase: str) -> SearchStrategy[str]:
    """The phrase's beginning or end; the phrase begun twice; one character removed, doubled or replaced."""
    changes = [
        lambda i: phrase[:i],
        lambda i: phrase[i:],
        lambda i: phrase[:i] + phrase,
        lambda i: phrase + phrase[i:],
        lambda i: phrase[:i] + phrase[i + 1 :],
        lambda i: phrase[: i + 1] + phrase[i:],
        lambda i: phrase[:i] + "x" + phrase[i + 1 :],
    ]
    return st.builds(lambda change, i: change(i), st.sampled_from(changes), st.integers(0, len(phrase)))


@cache
def runs(phrase: str) -> SearchStrategy[str]:
    """The phrase's beginning, repeated."""
    return st.builds(
        lambda i, n: (phrase[:i] * n)[:MAX_RUN], st.integers(1, len(phrase)), st.integers(1, MAX_RUN)
    )


def _homoglyph(character: str) -> str:
    return HOMOGLYPHS.get(character, character)


def _escaped(character: str) -> str:
    escaped = json.dumps(character)[1:-1]
    return escaped if escaped != character else f"\\u{ord(character):04x}"
