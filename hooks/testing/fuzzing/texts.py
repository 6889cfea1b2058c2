"""Texts that try to get round a guard: Hypothesis strategies.

They say a guard's own phrases split, disguised, in part and nearly, beside long runs and characters from the
edges of Unicode. Half a surrogate pair is not among them, since no engine can yield one; an escaped one is,
as a model may write it in JSON.
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
"""Cyrillic letters where there are any that look the same, and full-width forms for the rest of ASCII."""
WITHIN = ["\u200b", "\u00ad", "\u200d", "\ufeff", "\u0301", "\u0338", " ", "\n", "-", "."]
"""Characters that may stand within a word without hiding it from most readers."""
EDGES = ["\x00", "\x7f", "\x80", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff"]
"""First and last of each length in UTF-8, and both sides of the surrogates."""
AWKWARD = ["🎉", "👩‍👩‍👧", "🇩🇪", "👍🏽", "e\u0301", "ﬁ", "İ", "ß", "ſ", "\\ud83c\\udf89", "\r\n"]
"""Characters of several code points, or of several in another case."""

MAX_RUN = 200
"""Characters."""

# Hypothesis's own strategy for these first needs seconds for its tables, and a folder to keep them in.
characters = st.integers(0, 0x10F7FF).map(lambda n: chr(n if n < 0xD800 else n + 0x800))


def texts(phrases: Sequence[str]) -> SearchStrategy[str]:
    """Texts of some hundred characters, around `phrases`."""
    words = st.text(string.ascii_lowercase + " .,\n", max_size=12)
    pieces = [words, st.sampled_from(EDGES + AWKWARD)]
    if phrases:
        phrase = st.sampled_from(sorted(set(phrases), key=len))
        pieces += [phrase, phrase.flatmap(disguised), phrase.flatmap(nearly), phrase.flatmap(runs)]
    pieces += [runs("a"), st.lists(characters, max_size=5).map("".join)]
    return st.lists(st.one_of(pieces), max_size=6).map("".join)


@cache
def disguised(phrase: str) -> SearchStrategy[str]:
    """Texts that a reader takes for the phrase, though not one of them is."""
    place = st.integers(0, len(phrase) - 1)
    change = st.sampled_from([_homoglyph, _other_case, _escaped])
    return st.one_of(
        st.builds(lambda i, x: phrase[:i] + x + phrase[i:], place, st.sampled_from(WITHIN)),
        st.builds(lambda i, other: phrase[:i] + other(phrase[i]) + phrase[i + 1 :], place, change),
        change.map(lambda other: "".join(map(other, phrase))),
        st.sampled_from(WITHIN).map(lambda x: x.join(phrase)),
    )


@cache
def nearly(phrase: str) -> SearchStrategy[str]:
    """Its beginning, its end, itself begun twice, and itself with a letter too few, too many or exchanged."""
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
    """Its beginning, again and again."""
    return st.builds(
        lambda i, n: (phrase[:i] * n)[:MAX_RUN], st.integers(1, len(phrase)), st.integers(1, MAX_RUN)
    )


def _homoglyph(character: str) -> str:
    return HOMOGLYPHS.get(character, character)


def _other_case(character: str) -> str:
    return character.swapcase()


def _escaped(character: str) -> str:
    escaped = json.dumps(character)[1:-1]
    return escaped if escaped != character else f"\\u{ord(character):04x}"
