"""Finds the name that somebody probably meant, for messages about names that do not exist."""

from collections.abc import Collection
from difflib import get_close_matches

MAX_LENGTH = 200
"""Characters. To compare long names takes long, and a request may have one."""
MIN_PART = 3
"""Characters of a name that can stand for a longer one, such as qwen3-8b for Qwen/Qwen3-8B."""


def did_you_mean(name: str, known: Collection[str]) -> str:
    """The end of a message about an unknown name: `; did you mean 'NAME'?`, or empty if no name is near."""
    near = nearest(name, known)
    return "" if near is None else f"; did you mean {near!r}?"


def nearest(name: str, known: Collection[str]) -> str | None:
    """The known name that is most like `name`, or None. Case and the signs - _ . make no difference."""
    if len(name) > MAX_LENGTH:
        return None
    plain = {_plain(one): one for one in known}
    asked = _plain(name)
    for found in get_close_matches(asked, plain, 1):
        return plain[found]
    having = [one for one in plain if asked in one]
    return plain[having[0]] if len(having) == 1 and len(asked) >= MIN_PART else None


def _plain(name: str) -> str:
    return name.casefold().translate(_NO_SIGNS)


_NO_SIGNS = str.maketrans("", "", "-_. ")
