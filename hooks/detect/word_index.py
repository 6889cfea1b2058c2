"""An index of a text's words. A value that is looked up in it costs its own length, and not the text's."""

import re
from collections import defaultdict
from collections.abc import Iterator

_WORD = re.compile(r"\w+")


class WordIndex:
    """The places of each word. A word is a run of letters, digits and `_` that is as long as it can be."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._begins: dict[str, list[int]] = defaultdict(list)
        for word in _WORD.finditer(text):
            self._begins[word[0]].append(word.start())
        self._left = 2 * len(text)
        """The places that may still be tried, so that no values cost more than a time linear in the text."""

    def places(self, value: str) -> Iterator[int]:
        """The places of the value in which its words are words of the text. None for a value without words,
        and once too many places were tried."""
        found = [(self._begins.get(word[0], []), word.start()) for word in _WORD.finditer(value)]
        begins, offset = min(found, key=lambda one: len(one[0]), default=([], 0))
        for begin in begins[: self._left]:
            self._left -= 1
            if begin >= offset and self._text.startswith(value, begin - offset):
                yield begin - offset
