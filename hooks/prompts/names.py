"""Names as words: a tool may be called `get_project_bluebird` or `getProjectBluebird`."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import count

_JOINTS = str.maketrans("_-.", "   ")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


def words_at_joints(name: str) -> str:
    """`name` with a space for each `_`, `-` and `.`."""
    return " ".join(name.translate(_JOINTS).split())


def words_at_case(name: str) -> str:
    """The same, and with a space at each change of case: `get URL Of Page` for `getURLOf_Page`."""
    words = words_at_joints(name)
    return "".join(f" {one}" if _begins_word(words, i) else one for i, one in enumerate(words))


READINGS: tuple[Callable[[str], str], ...] = (words_at_joints, words_at_case)
"""The two ways to read a name as words. The second cannot replace the first: it splits `OpenAI`."""


def readings_of(name: str) -> list[str]:
    """The readings of a name that differ from the name and from each other."""
    return list(dict.fromkeys(words for read in READINGS if (words := read(name)) != name))


def name_of(words: str) -> str:
    """Words joined to a name as the API takes it: of ASCII letters, digits, `_` and `-`, and not empty."""
    return _NOT_IN_NAMES.sub("_", words).strip("_") or "_"


def own_names(given: Sequence[str], shown: Sequence[str]) -> dict[str, str]:
    """The names that a caller gave his tools, by the names that hooks made of them. The two lists are in the
    same order; if hooks have added or removed tools, no name is known."""
    if len(given) != len(shown):
        return {}
    return {new: own for own, new in zip(given, shown, strict=True) if new not in given}


def distinct(name: str, taken: Collection[str]) -> str:
    """`name`, or the first of `name_2`, `name_3` and so on that is not taken."""
    return next(one for one in _numbered(name) if one not in taken)


def _numbered(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}_{number}" for number in count(2))


def _begins_word(text: str, at: int) -> bool:
    """Whether the case changes there: at a capital after a small letter or a digit, or at the last capital
    in front of a small letter."""
    if at == 0 or not text[at].isupper():
        return False
    before, after = text[at - 1], text[at + 1 : at + 2]
    return before.islower() or before.isdigit() or (before.isupper() and after.islower())
