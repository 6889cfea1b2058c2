"""Strings that match a pattern, drawn at random."""

import random
import re
import string
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache

import regex

from hooks.detect.automaton.regex_analysis import analyse
from hooks.detect.automaton.tree import Either, Join, Node, One, Repeat, tree_of

PRINTABLE = string.ascii_letters + string.digits + string.punctuation + " "
_SPREAD = 12
"""Most repeats that are drawn above the fewest that a pattern allows."""


def drawn(pattern: str, rng: random.Random, is_fit: Callable[[str], object] = bool, tries: int = 200) -> str:
    """Return a random string that `pattern` matches and `is_fit` accepts. Look-arounds are not drawn:
    `is_fit` must judge them. Raises `ValueError` if none of `tries` strings is fit, and for a pattern that
    guards refuse."""
    tree, shared = _parsed(pattern)
    for _ in range(tries):
        text = _Drawing(rng, shared).text(tree)
        if is_fit(text):
            return text
    raise ValueError(f"nothing that was drawn from {pattern!r} is fit")


@lru_cache(1000)
def _parsed(pattern: str) -> tuple[Node, frozenset[int]]:
    """Return the pattern's tree, and the ids of nodes in two places: a group, and a reference to it."""
    analyse(pattern)
    tree = tree_of(pattern)
    if tree is None:
        raise ValueError(f"{pattern!r} has a condition on a group")
    places = Counter(map(id, _nodes(tree)))
    return tree, frozenset(node for node, count in places.items() if count > 1)


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    match node:
        case Join(nodes) | Either(nodes):
            for one in nodes:
                yield from _nodes(one)
        case Repeat(part):
            yield from _nodes(part)


class _Drawing:
    def __init__(self, rng: random.Random, shared: frozenset[int]) -> None:
        self._rng = rng
        self._shared = shared
        self._known: dict[int, str] = {}

    def text(self, node: Node) -> str:
        if id(node) not in self._shared:
            return self._new(node)
        if id(node) not in self._known:
            self._known[id(node)] = self._new(node)
        return self._known[id(node)]

    def _new(self, node: Node) -> str:
        match node:
            case One(pattern, literal):
                return literal or self._rng.choice(_members(pattern))
            case Join(parts):
                return "".join(map(self.text, parts))
            case Either(branches):
                return self.text(self._rng.choice(branches))
            case Repeat(part, fewest, most):
                times = self._rng.randint(fewest, min(most, fewest + _SPREAD))
                return "".join(self.text(part) for _ in range(times))
        return ""  # Look-arounds have no character.


@lru_cache(1000)
def _members(pattern: str) -> str:
    """Return the printable characters that the pattern of one character matches, or else its last sign."""
    return "".join(filter(regex.compile(pattern).fullmatch, PRINTABLE)) or pattern[-1]


_LOOKS_BEHIND = re.compile(r"(?:\(\?a\)|\(\?<![^()]*\)|\\b)*\(\?<=([^()]*)\)")
_LOOKS_AHEAD = re.compile(r"\(\?=((?:[^()]|\([^()]*\))+)\)(?:\(\?![^()]*\)|\$)*\Z")


def drawn_between(pattern: str, rng: random.Random) -> tuple[str, str, str]:
    """Return a random string that `pattern` matches, with strings before and after it for a look-behind at
    the pattern's beginning and a look-ahead at its end. Raises `ValueError` as `drawn` does."""
    behind, ahead = _LOOKS_BEHIND.match(pattern), _LOOKS_AHEAD.search(pattern)
    before, after = (drawn(found[1], rng, _any) if found else "" for found in (behind, ahead))
    return before, drawn(pattern, rng, _any), after


def _any(text: str) -> bool:
    return True
