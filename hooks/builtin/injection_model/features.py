"""Features of a text: numbers of its words, of pairs of words, and of runs of four characters.

A number is a hash, as in the "hashing trick" (Weinberger et al. 2009). numpy computes those of all places at
once, so a text costs a few passes over its characters. Each feature belongs to the word where it begins, so
the features of any window of words are those of its words.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hooks.detect.folding import Folding

BITS = 20
"""A feature's number has so many bits."""
_FOLDING = Folding(("case", "compatibility", "invisible", "lookalikes"))
_LONGEST = 32
"""A longer word's characters from there on are read as at its beginning."""
_SPACE = 32
_ODD = np.uint32(0x9E3779B1)
_POWERS = np.array([pow(0x01000193, i + 1, 1 << 32) for i in range(_LONGEST)], dtype=np.uint32)
_WORD_CHARS = np.array([chr(code).isalnum() for code in range(128)] + [True])
_PLAIN = np.array([ord("0") if chr(code).isdecimal() else code for code in range(128)], dtype=np.uint32)


class Features(NamedTuple):
    numbers: NDArray[np.uint32]
    """The features, each below `2 ** BITS`: `[features]`."""
    words: NDArray[np.int64]
    """The index of each feature's word: `[features]`."""
    places: NDArray[np.int64]
    """The place of each word in the text, and the text's end: `[words + 1]`."""

    @property
    def num_words(self) -> int:
        return len(self.places) - 1


def features(text: str) -> Features:
    """The features of a text. Its case, its accents, its look-alikes and its unseen characters do not count,
    and all digits are one."""
    folded, origins = _FOLDING.fold(text)
    codes = np.frombuffer(folded.encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.uint32)
    is_word = _WORD_CHARS[np.minimum(codes, 128)]
    codes = np.where(codes < 128, _PLAIN[np.minimum(codes, 127)], codes)
    begins = is_word.copy()
    begins[1:] &= ~is_word[:-1]
    starts = np.flatnonzero(begins)
    if not len(starts):
        return Features(np.zeros(0, np.uint32), np.zeros(0, np.int64), np.array([len(text)]))
    places = starts if isinstance(origins, range) else np.asarray(origins)[starts]
    places = np.append(places, len(text))
    word_of = np.cumsum(begins) - 1
    within = np.flatnonzero(is_word)
    powers = _POWERS[(within - starts[word_of[within]]) % _LONGEST]
    begun = np.cumsum(is_word)[starts] - 1
    words = np.add.reduceat(codes[within] * powers, begun, dtype=np.uint32)
    # One space stands for all that is between two words.
    kept = is_word.copy()
    kept[1:] |= is_word[:-1]
    kept = np.flatnonzero(kept)
    line = np.where(is_word[kept], codes[kept], np.uint32(_SPACE))
    index = np.arange(len(starts))
    found = [_mixed(words, 1), _mixed(words[:-1] * _POWERS[1] + words[1:], 2)]
    found.append(_mixed(words[:-2] * _POWERS[2] + words[2:], 3))
    places_of = [index, index[:-1], index[:-2]]
    if len(line) >= 4:
        runs = (
            line[:-3] * _POWERS[0] + line[1:-2] * _POWERS[1] + line[2:-1] * _POWERS[2] + line[3:] * _POWERS[3]
        )
        found.append(_mixed(runs, 4))
        places_of.append(word_of[kept[:-3]])
    return Features(np.concatenate(found), np.concatenate(places_of), places)


def _mixed(hashes: NDArray[np.uint32], kind: int) -> NDArray[np.uint32]:
    """Spread hashes evenly. Those of another kind of feature get other numbers."""
    mixed = (hashes ^ np.uint32(kind * 0x51ED27)) * _ODD
    mixed ^= mixed >> np.uint32(15)
    mixed *= np.uint32(0x85EBCA6B)
    return mixed >> np.uint32(32 - BITS)
