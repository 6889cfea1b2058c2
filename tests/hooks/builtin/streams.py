"""Streams for guards: a text in pieces through a guard, and what should come out, however it is cut."""

import asyncio
import random
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import strategies as st

from engine.protocol import Delta, GenerationRequest, ToolCall
from hooks import Chunk, Verdict
from hooks.detect.detector import Match
from tests.helpers import guard_all, make_deltas, pipeline_of, slow, text_of

PLACES = st.lists(st.integers(1, 200), max_size=60)


def cut(text: str, places: Iterable[int]) -> list[str]:
    """`text` cut at those of `places` that it has."""
    bounds = [0, *sorted({place for place in places if 0 < place < len(text)}), len(text)]
    return [text[a:b] for a, b in pairwise(bounds)]


SELDOM_IN_A_WORKER = pytest.mark.parametrize("mode", ["in-process", slow("worker")], indirect=True)
"""For a test of many chunks. That a worker's channel changes nothing is shown by tests of fewer."""


def ways_to_cut(text: str, rng: random.Random, count: int) -> list[list[str]]:
    """Into characters, and in `count` random ways."""
    ways = [list(text)]
    for _ in range(count):
        size = rng.choice((2, 4, 9, 30))
        ways.append(cut(text, [i for i in range(len(text)) if rng.randrange(size) == 0]))
    return ways


def run(
    guard: Any, pieces: Sequence[str], channel: str = "content", request: GenerationRequest | None = None
) -> list[Delta]:
    """The tokens of a stream that a client may have, a token a piece. Pieces of calls leave as they are
    passed: so a test sees what the guard releases of a call that it ends."""
    (released,) = run_all(guard, [pieces], channel, request)
    return released


def run_all(
    guard: Any,
    streams: Iterable[Sequence[str]],
    channel: str = "content",
    request: GenerationRequest | None = None,
) -> list[list[Delta]]:
    fields: dict[str, Any] = {"channel": channel}
    if channel == "tool_call":
        fields["tool_call"] = ToolCall(0, "send")

    async def all_of_them() -> list[list[Delta]]:
        return [
            await guard_all(
                pipeline_of(guard, tool_calls="stream"),
                [*make_deltas(pieces, finish=False, **fields), Delta(finish_reason="stop")],
                request,
            )
            for pieces in streams
        ]

    return asyncio.run(all_of_them())


def said(
    guard: Any, pieces: Sequence[str], channel: str = "content", request: GenerationRequest | None = None
) -> str:
    return text_of(run(guard, pieces, channel, request), channel)


def replaced(text: str, matches: Iterable[Match], template: str = "[{entity}]") -> str:
    """`text` with `matches` redacted: matches that overlap are one, named as the first of them."""
    out: list[str] = []
    covered = 0
    for start, end, entity, _ in sorted(matches, key=lambda match: (match.start, -match.end, match.rule)):
        if start >= covered:
            out += [text[covered:start], template.format(entity=entity)]
        covered = max(covered, end)
    return "".join([*out, text[covered:]])


def assert_untouched(released: Iterable[Delta], pieces: Sequence[str], matches: Iterable[Match]) -> None:
    """Just the tokens with text of which nothing is in a match are released, a token a piece."""
    gone = {i for match in matches for i in range(match.start, match.end)}
    ends = accumulate(map(len, pieces))
    places = [range(end - len(piece), end) for piece, end in zip(pieces, ends, strict=True)]
    wanted = [i for i, place in enumerate(places) if place and gone.isdisjoint(place)]
    assert [token.id for delta in released for token in delta.tokens if token.text] == wanted


class Watch:
    """A guard, and the most characters that it held."""

    def __init__(self, guard: Any) -> None:
        self.guard = guard
        self.most_held = 0

    def __call__(self, chunk: Chunk) -> Verdict:
        self.most_held = max(self.most_held, len(chunk.pending) - len(chunk.text_diff))
        verdict: Verdict = self.guard(chunk)
        return verdict
