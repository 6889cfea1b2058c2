"""Runs: neighbouring words that may be a name, and the tokens around them.

A run begins at a word with a capital letter. Words with capital letters, initials and particles (`de`, `of`)
continue it. A line break, also one written as `\\n`, or any other sign ends it. Names are found in runs only.
A run is decided when the token after it is complete, and depends on `LEFT` characters before it: nothing here
knows how a text is cut.
"""

import re
from typing import NamedTuple

MAX_RUN = 96
"""Most characters of a run before its last word."""
MAX_WORD = 40
"""Most characters of a word in a run. A longer one is no name."""
MAX_GAP = 4
"""Most characters between two words of a run."""
LEFT = 48
"""Most characters before a run that are read."""
LONGEST = MAX_RUN + MAX_GAP + MAX_WORD + 4
"""Most characters at the end of a text that cannot be decided: a run, its last word, a gap, the next word."""
EDGE = "\n"
"""The token beyond an end of the text, or of a line."""

_UPPER = "".join(char for char in map(chr, (*range(0x600), *range(0x1E00, 0x2000))) if char.isupper())
_HIDDEN = "\u00ad\u200b-\u200d\u2060\ufeff\u0300-\u036f"
"""Characters inside a word that are not seen, and accents written apart."""
_LETTER = r"[^\W\d_]"
_JOINS = rf"(?:['’‘.](?=[{_UPPER}])|[-‐‑](?={_LETTER}))"
_WORD = rf"{_LETTER}(?:[{_HIDDEN}]*{_JOINS}?{_LETTER})*"
_BLANK = r"[ \t\u00a0\u2002-\u200a\u202f*_]"
_find_capital = re.compile(rf"(?:(?<!\w)|(?<=[^\w]_)|(?<=\\[nrt]))[{_UPPER}]").search
_word_at = re.compile(_WORD).match
_may_go_on = re.compile(rf"[{_HIDDEN}]*['’‘.\-‐‑]?\Z").match
_gap_at = re.compile(rf"{_BLANK}{{1,{MAX_GAP}}}(?={_LETTER})|{_BLANK}?&{_BLANK}?(?={_LETTER})").match
_open_gap_at = re.compile(rf"{_BLANK}{{0,{MAX_GAP}}}\Z|{_BLANK}?&{_BLANK}?\Z").match
_blanks = re.compile(rf"{_BLANK}{{1,{MAX_GAP}}}").match
_tokens = re.compile(rf"\\[nrt]|{_WORD}|\d+|\n|[^\w\s]").findall
_hidden = re.compile(f"[{_HIDDEN}]")
_PARTICLES = frozenset(
    [
        "al",
        "an",
        "and",
        "at",
        "da",
        "das",
        "de",
        "dei",
        "del",
        "della",
        "den",
        "der",
        "des",
        "di",
        "do",
        "dos",
        "du",
        "e",
        "el",
        "et",
        "für",
        "i",
        "ibn",
        "in",
        "la",
        "las",
        "le",
        "les",
        "los",
        "of",
        "on",
        "the",
        "ter",
        "und",
        "upon",
        "van",
        "vom",
        "von",
        "y",
        "zu",
        "zum",
        "zur",
    ]
)
_ABBREVIATIONS = frozenset(
    [
        "av",
        "ave",
        "bd",
        "blvd",
        "co",
        "corp",
        "dott",
        "dr",
        "dra",
        "fr",
        "gen",
        "gov",
        "hr",
        "inc",
        "ing",
        "jr",
        "ltd",
        "mag",
        "mme",
        "mlle",
        "mr",
        "mrs",
        "ms",
        "mt",
        "ph",
        "prof",
        "rd",
        "rev",
        "sen",
        "sgt",
        "sig",
        "sr",
        "sra",
        "st",
        "str",
        "пл",
        "пр",
        "св",
        "ул",
    ]
)
"""Words with a period that ends no sentence."""
_MOST_WORDS = 10
_MOST_PARTICLES = 3


class Word(NamedTuple):
    """The characters from `start` up to `end`, without those that are not seen."""

    start: int
    end: int
    text: str


class Run(NamedTuple):
    words: list[Word]
    before: list[str]
    """The two tokens before the run."""
    after: str
    """The token after the run."""


class _Open(Exception):
    """More text could change the run."""


def runs(text: str, start: int, is_final: bool) -> tuple[list[Run], int]:
    """The runs of `text` from `start` on, and the place up to which more text changes nothing.

    `start`: 0, or a place that an earlier call returned. `text` has the `LEFT` characters before it.
    """
    found: list[Run] = []
    place = start
    while (capital := _find_capital(text, place)) is not None:
        begin = capital.end() - 1
        try:
            run, place = _run_at(text, begin, is_final)
        except _Open:
            return found, begin
        if run is not None:
            found.append(run)
    return found, len(text)


def _run_at(text: str, begin: int, is_final: bool) -> tuple[Run | None, int]:
    """The run that begins here, and the place to go on from. None: the word is too long for a name."""
    first = _word(text, begin, is_final)
    if first is None:
        return None, begin + 1
    words = [first]
    end = first.end
    particles: list[Word] = []
    after = EDGE
    while True:
        last = particles[-1] if particles else words[-1]
        word = _following(text, last, is_final)
        if not particles:
            after = word if isinstance(word, str) else word.text
        if isinstance(word, str) or len(words) >= _MOST_WORDS or word.end - begin > MAX_RUN:
            break
        if word.text[0].isupper() or word.text[1:2] in ("'", "’"):
            words += [*particles, word]
            particles.clear()
            end = word.end
        elif word.text in _PARTICLES and len(particles) < _MOST_PARTICLES:
            particles.append(word)
        else:
            break
    before = _tokens(text, max(0, begin - LEFT), begin)[-2:]
    before = [EDGE if token[0] == "\\" else token for token in before]
    return Run(words, [EDGE] * (2 - len(before)) + before, after), end


def _word(text: str, place: int, is_final: bool) -> Word | None:
    """The word at `place`. None: it is too long."""
    match = _word_at(text, place, place + MAX_WORD + 1)
    assert match is not None
    end = match.end()
    if end - place > MAX_WORD:
        return None
    if not is_final and _may_go_on(text, end) and len(text) - place <= MAX_WORD:
        raise _Open
    shown = match[0]
    return Word(place, end, shown if shown.isascii() else _hidden.sub("", shown))


def _following(text: str, last: Word, is_final: bool) -> Word | str:
    """The next word if only a gap is before it; else the next token."""
    place = last.end
    if text.startswith(".", place):
        if len(last.text) > 1 and last.text.lower() not in _ABBREVIATIONS:
            return "."
        place += 1
    if not is_final and _open_gap_at(text, place):
        raise _Open
    gap = _gap_at(text, place)
    if gap is not None:
        return _word(text, gap.end(), is_final) or "-"
    sign = text[place : place + 1]
    if sign.isdigit():
        return "#"
    if text.startswith("\\", place):
        return EDGE
    blanks = _blanks(text, place)
    after = place if blanks is None else blanks.end()
    sign = "." if place > last.end else text[after : after + 1]
    return "0" if sign.isdigit() else EDGE if not sign or sign.isspace() or sign.isalpha() else sign
