"""Whether a text looks random, as keys and generated passwords do, or consists of words."""

import math
import re

_SEPARATORS = re.compile(r"[-._/:+=~()\[\]]+")
_WORD = re.compile(r"([A-Za-z]+)\d{0,4}[!?]{0,2}")
_NUMBERED_WORDS = re.compile(r"(?:[A-Z]?[a-z]{2,}\d{0,3}){1,2}(?:[A-Z][a-z]{2,}\d{0,3})*")
"""Words of a name, with numbers among them: ReadUint24LengthPrefixed."""
_CAMEL = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_UNSPEAKABLE = re.compile(r"[bcdfghjklmnpqrstvwxz]{5}|(.)\1\1|\A[^aeiouy]+\Z", re.IGNORECASE)


def looks_random(text: str) -> bool:
    """Whether half of the characters or more are in no word, number or abbreviation, and few repeat."""
    tokens = [token for token in _SEPARATORS.split(text) if token]
    plain = sum(len(token) for token in tokens if _is_plain(token))
    return 2 * plain <= sum(map(len, tokens)) and entropy(text) >= 2.5


def entropy(text: str) -> float:
    """Return Shannon's entropy of the characters' frequencies, in bits a character."""
    if not text:
        return 0.0
    counts = map(text.count, set(text))
    return math.log2(len(text)) - sum(count * math.log2(count) for count in counts if count > 1) / len(text)


def _is_plain(token: str) -> bool:
    if token.isdecimal() or (len(token) <= 3 and token in (token.lower(), token.upper(), token.title())):
        return token.isalnum()
    letters = _WORD.fullmatch(token)
    if letters is None and not _NUMBERED_WORDS.fullmatch(token):
        return False
    parts = _CAMEL.findall(token if letters is None else letters[1])
    is_speakable = not any(_UNSPEAKABLE.search(part) for part in parts if len(part) > 3)
    return is_speakable and sum(map(len, parts)) >= (2.6 if letters else 4) * len(parts)
