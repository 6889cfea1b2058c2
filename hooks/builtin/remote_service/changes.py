"""The places of a text that a service changed, for APIs that answer with the changed text alone."""

import re
from difflib import SequenceMatcher

from hooks.builtin.remote_service.service import DetectorError

_WORD = re.compile(r"[^\W\u2e80-\U0010ffff]+|\S")
"""A word, or one sign. Scripts that put no spaces between words have a sign for each character."""
_MOST_PAIRS = 1_000_000
"""Most pairs of words to compare: 1 ms for a usual window, 0.1 s at worst."""


def changes(text: str, changed: str) -> list[tuple[int, int]]:
    """Return the places of the words in `text` that `changed` does not have. The other words of `text` are
    in `changed`, in the same order.

    White space does not count. If `changed` only has more words than `text`, or is much longer, the place is
    the whole text. Raises `DetectorError` if the two are equal: the service reported a change.
    """
    if text == changed:
        raise DetectorError("the service reports that it changed the text, and did not")
    words = list(_WORD.finditer(text))
    before, after = [word[0] for word in words], _WORD.findall(changed)
    if before == after:
        return []
    if len(before) * len(after) > _MOST_PAIRS:
        return [(0, len(text))]
    edits = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    places = [
        (words[start].start(), words[end - 1].end())
        for tag, start, end, *_ in edits
        if tag in ("replace", "delete")
    ]
    return places or [(0, len(text))]
