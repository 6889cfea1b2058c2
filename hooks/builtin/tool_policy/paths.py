"""Paths: whether something at a path is in a folder, as far as the path's text shows.

A path is read in every way in which a tool may read it: as it is, without blanks around it, without quotes,
percent-decoded, with compatible characters, and word by word. The answer is the one that all readings give. A
text that a shell, a library or Windows may expand to anything has no known reading.
"""

import re
import unicodedata
from collections.abc import Sequence
from fnmatch import fnmatchcase
from posixpath import normpath
from typing import NamedTuple
from urllib.parse import unquote

from hooks.builtin.tool_policy.truth import Truth, agreed, any_of

_EXPANDED = re.compile(
    r"""
      [\\$`~{}]              # escapes, variables, commands, home folders, braces
    | [\u2044\u2215\u2216\xa5\u20a9]  # what code pages of Windows make slashes of
    | \[[^/]*\[[:.=]         # classes of characters
    | %[^%/\s]+%             # variables of Windows
    | [?*+@!]\(              # patterns of ksh and bash
    | \A[/\s]*//             # another machine, for Windows
    | \A\s*-                 # an option
    | \A\s*[A-Za-z][A-Za-z0-9+.-]+:  # an address
    | \A\s*[A-Za-z]:(?!/)    # a place on a drive of Windows that depends on its current folder
    | (?:\A|/)\.[^/]*[*?\[]  # a pattern that may match .. in some shells
    """,
    re.VERBOSE,
)
_QUOTES = str.maketrans("", "", "'\"^")
_BETWEEN_WORDS = " \u1680\u2028\u2029\u3000;|&<>(=,:@!#?"
_LONGEST = 4096
"""Most characters of a path on Linux."""
_MOST_DECODINGS = 3
_MOST_WORDS = 256
_MOST_READINGS = 64
_DRIVE = re.compile(r"[A-Za-z]:/")
_PATTERN = re.compile(r"[*?\[]")
_LINKS = {"root", "cwd", "fd", "exe", "task", "map_files"}
"""Links in a process's folder of `/proc`."""
_LINKED = {("var", "run"), ("var", "lock"), ("bin",), ("sbin",), ("lib",), ("lib64",)}
"""Folders that are links on most systems: `..` leads from them to a folder above another one."""
_SAME = {
    ("system", "volumes", "data"): (),
    ("private", "etc"): ("etc",),
    ("private", "var"): ("var",),
    ("private", "tmp"): ("tmp",),
    ("var", "run"): ("run",),
    ("usr", "bin"): ("bin",),
    ("usr", "sbin"): ("bin",),
    ("sbin",): ("bin",),
    ("usr", "lib"): ("lib",),
    ("usr", "lib64"): ("lib64",),
}
"""Folders that are links to others on most systems. Those of macOS come first."""


class _Place(NamedTuple):
    root: str
    """`/`, a drive such as `c:`, or empty for a path that is relative."""
    names: tuple[str, ...]

    @property
    def num_up(self) -> int:
        return sum(name == ".." for name in self.names)

    @property
    def folded(self) -> tuple[str, ...]:
        """The names as file systems compare them that ignore case, compatible forms, and dots at the end."""
        names = tuple(unicodedata.normalize("NFKC", name).casefold().rstrip(" .") for name in self.names)
        for folder, target in _SAME.items() if self.root else ():
            if names[: len(folder)] == folder:
                names = target + names[len(folder) :]
        return names


class Folders:
    """Some folders, for the question whether a path leads into one of them."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = [_place(folder) for folder in folders]
        signs = "".join(sign for sign in _BETWEEN_WORDS if not any(sign in folder for folder in folders))
        self._split = re.compile(f"[{re.escape(signs)}]+").split if signs else lambda text: [text]

    def have(self, path: str) -> Truth:
        """Whether something at `path` is in one of the folders. Links of the file system are not known."""
        return agreed(
            any_of(_is_in(place, folder) for folder in self._folders) for place in self._readings(path) or ()
        )

    def _readings(self, text: str) -> list[_Place] | None:
        """The places to which `text` may lead. None: it may lead anywhere."""
        if len(text) > _LONGEST:
            return None
        texts = [text]
        while (decoded := unquote(texts[-1])) != texts[-1]:
            if len(texts) > _MOST_DECODINGS:
                return None
            texts.append(decoded)
        for read in (_compatible, _unquoted):
            texts = [*dict.fromkeys([*texts, *map(read, texts)])]
            if any(len(one) > _LONGEST for one in texts):
                return None
        words = dict.fromkeys(word for one in texts for word in self._split(one))
        if len(words) > _MOST_WORDS:
            return None
        texts += filter(_leaves, words)
        different = [*dict.fromkeys([*texts, *map(str.strip, texts)])]
        if len(different) > _MOST_READINGS or not all(map(_is_known, different)):
            return None
        return None if any(map(_has_links, different)) else [*map(_place, different)]


def _compatible(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _unquoted(text: str) -> str:
    return text.translate(_QUOTES)


def _leaves(word: str) -> bool:
    """Whether a word leads out of the current folder."""
    return word.startswith("/") or normpath(word or ".").startswith("..")


def _is_known(text: str) -> bool:
    if any(unicodedata.category(char)[0] == "C" for char in text) or _EXPANDED.search(text):
        return False
    return bool(text.strip()) and not any(map(_may_lead_up, text.split("/")))


def _may_lead_up(name: str) -> bool:
    """Whether Windows may take the name for `..`."""
    return "." in name and not name.strip(". ") and name not in (".", "..")


def _place(text: str) -> _Place:
    drive = text[:2].lower() if _DRIVE.match(text) else ""
    path = normpath(text[len(drive) :])
    names = tuple(name for name in path.split("/") if name not in ("", "."))
    return _Place(drive or ("/" if path.startswith("/") else ""), names)


def _has_links(path: str) -> bool:
    """Whether the path goes through a link of `/proc`, even if it leaves the link again by `..`, or leaves
    another folder that is a link by `..`."""
    names = tuple(name.casefold() for name in path.split("/") if name not in ("", "."))
    if path.startswith("/") and _leaves_a_link(names):
        return True
    return any(
        (name == "proc" and _LINKS.intersection(names[i + 2 :])) or names[i : i + 2] == ("dev", "fd")
        for i, name in enumerate(names)
    )


def _leaves_a_link(names: Sequence[str]) -> bool:
    inside: list[str] = []
    for name in names:
        if name != "..":
            inside.append(name)
        elif tuple(inside) in _LINKED:
            return True
        else:
            del inside[-1:]
    return False


def _is_in(place: _Place, folder: _Place) -> Truth:
    if place.root == folder.root and place.num_up == folder.num_up:
        return _begin(place, folder)
    if place.num_up or folder.num_up:
        return Truth.UNKNOWN  # it depends on the tool's current folder
    if place.root and folder.root:
        return min(_begin(place, folder), Truth.UNKNOWN)  # `/` may be a drive
    # One is relative. Where the tool's current folder is above the folder, the names still show it.
    inner, outer = (place.folded, folder.folded) if folder.root else (folder.folded, place.folded)
    if folder.root:
        may_be = not outer or any(_may_begin(inner, outer[i:]) for i in range(len(outer)))
    else:
        may_be = any(_may_begin(outer[i:], inner) for i in range(len(outer) + 1))
    return Truth.UNKNOWN if may_be else Truth.NO


def _begin(place: _Place, folder: _Place) -> Truth:
    head = place.names[: len(folder.names)]
    if head == folder.names and not any(map(_PATTERN.search, head)):
        return Truth.YES
    return Truth.UNKNOWN if _may_begin(place.folded, folder.folded) else Truth.NO


def _may_begin(names: Sequence[str], folder: Sequence[str]) -> bool:
    """Whether `names` may begin with those of the folder. A name may be a pattern of a shell."""
    for i, wanted in enumerate(folder):
        if names[i : i + 1] == ("**",):
            return True
        if i >= len(names) or not (names[i] == wanted or fnmatchcase(wanted, _negated(names[i]))):
            return False
    return True


def _negated(pattern: str) -> str:
    """The pattern in Python's form. A shell also takes `^` for not."""
    return pattern.replace("[^", "[!")
