"""Values that leave and come back: masks a prompt, and joins what comes back with a detector's matches."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from hooks import Span
from hooks.detect.detector import Match
from hooks.detect.placeholders import PASSED, Placeholders, placeholders_in

MARK = "\ue000"
"""Stands for a placeholder that is not made yet. A character of Unicode's private use."""
_IN_BRACKETS = re.compile(r"\[[^\[\]]*\]")
"""A text that may be a placeholder, also one of another hook's own form."""


def masked(text: str, spans: Iterable[Span], placeholders: Placeholders, *, is_json: bool) -> Iterator[Span]:
    """The spans of a prompt's text with a placeholder for each `MARK`.

    A placeholder that an earlier guard has put there stays, so that this guard never hides one in a value.
    """
    for start, end, put, entity in _joined(spans):
        for begin, stop in _between_placeholders(text, start, end):
            value = _value(text[begin:stop], put, is_json=is_json)
            yield begin, stop, put.replace(MARK, placeholders.issue(entity, value)) if MARK in put else put


def expanded(text: str, values: Mapping[str, str]) -> str:
    """The text as the caller wrote it, or will read it. `values`: see `Chunk.caller_values`."""
    return _IN_BRACKETS.sub(lambda found: values.get(found[0], found[0]), text) if values else text


def _joined(spans: Iterable[Span]) -> list[tuple[int, int, str, str]]:
    """The spans, and those that continue the one before joined with it."""
    joined: list[tuple[int, int, str, str]] = []
    for start, end, put, *why in spans:
        if not put and joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], end, *joined[-1][2:])
        else:
            joined.append((start, end, put or MARK, why[0] if why else ""))
    return joined


def _between_placeholders(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for begin, stop in placeholders_in(text, start, end):
        if start < begin:
            yield start, begin
        start = stop
    if start < end:
        yield start, end


def _value(written: str, put: str, *, is_json: bool) -> str:
    """The value that is written there. `put`: in JSON, a number's replacement has quotes of its own."""
    if not is_json or put != MARK:
        return written
    try:
        value = json.loads(f'"{written}"', strict=False)
    except ValueError:  # words that are not JSON
        return written
    return value if isinstance(value, str) else written


def acted_on(
    matches: Sequence[Match],
    restored: Sequence[Match],
    others: Iterable[tuple[int, int]],
    undecided: int,
    is_value: Callable[[Match], bool],
) -> list[Match]:
    """The matches to act on, with the placeholders `restored` that come back now.

    A match that is a value of the caller's passes, with the rule `PASSED`, and so do matches inside it. No
    match covers a placeholder, and one that a match reaches comes back with it. Nor does a match cover one of
    `others`, the places at which other guards brought values back.
    """
    passed = {m[:2]: m._replace(rule=PASSED) for m in matches if is_value(m)}
    found = [m for m in matches if not any(start <= m.start and m.end <= end for start, end in passed)]
    passed = {p: m for p, m in passed.items() if not any(m.start < p[1] and m.end > p[0] for m in found)}
    end = max([undecided, *(match.end for match in found)])
    back = [one for one in restored if one.start < end]
    places = sorted([*others, *(one[:2] for one in back)])
    return [*(part for match in found for part in parts_outside(match, places)), *back, *passed.values()]


def parts_outside(match: Match, places: Iterable[tuple[int, int]]) -> Iterator[Match]:
    """The parts of a match that are in none of the places, which are sorted."""
    start = match.start
    for begin, end in places:
        if end > start and begin < match.end:
            if start < begin:
                yield match._replace(start=start, end=begin)
            start = end
    if start < match.end or match.start == match.end:
        yield match._replace(start=start)
