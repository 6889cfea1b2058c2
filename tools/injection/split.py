"""Keeps texts that train apart from texts that judge, near copies included."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

TRAINED = Path(__file__).with_name("trained.npy")
"""Digests of the texts that trained the weights, for a check of what judges them."""
_WORD = re.compile(r"\w+")
_SIZE = 5
"""The words of a shingle."""
_NEAR = 0.5
"""A text is a near copy if this share of its shingles is known."""


def digest(text: str) -> int:
    """A number for a text's words, without case and punctuation."""
    plain = " ".join(_WORD.findall(text.casefold()))
    return int.from_bytes(hashlib.sha256(plain.encode(errors="surrogatepass")).digest()[:8])


def third(text: str) -> int:
    """The part of a harmless text: 0 trains, 1 chooses thresholds, 2 judges."""
    return digest(text) % 3


class Shingles:
    """The runs of words of some texts."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._known = {hash(shingle) for text in texts for shingle in _shingles(text)}

    def has_near(self, text: str) -> bool:
        """Whether the text is a near copy of one of these texts, or of a part of one."""
        shingles = [hash(shingle) in self._known for shingle in _shingles(text)]
        return sum(shingles) >= _NEAR * len(shingles)


def _shingles(text: str) -> Iterator[tuple[str, ...]]:
    """A shorter text is one shingle."""
    words = _WORD.findall(text.casefold())
    for i in range(max(1, len(words) - _SIZE + 1)):
        yield tuple(words[i : i + _SIZE])
