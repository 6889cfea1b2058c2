"""Streams for parsers, cut and tokenised in any way, and a form in which to compare the results."""

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from engine.parsers import Parsers, Parsing
from engine.protocol import Delta, GenerationRequest, Token
from engine.streams.feeding import feed_given
from engine.streams.flow import StagedFlow
from tests.engine.streams.stages import Answer
from tests.helpers import make_request, make_token

TOOLS = ({"type": "function", "function": {"name": "f", "parameters": {}}},)


def request_with_tools(**fields: Any) -> GenerationRequest:
    return make_request(**{"tools": TOOLS, **fields})


def parse(
    parsers: Parsers, deltas: Iterable[Delta], request: GenerationRequest | None = None, tokenizer: Any = None
) -> list[Delta]:
    """The result of `Parsing` for one output's `deltas`. Checks the promises that hold for every answer."""

    parsing = Parsing(parsers, request or request_with_tools(), tokenizer)
    asyncio.run(StagedFlow(partial(feed_given, deltas), [parsing]).run(answer := Answer()))
    made = answer.deltas
    assert [d.finish_reason is not None for d in made] == [False] * (len(made) - 1) + [True]
    for delta in made:
        assert not delta.tokens or "".join(t.text for t in delta.tokens) == delta.text
        assert (delta.tool_call is not None) == (delta.channel == "tool_call")
    return made


def said(deltas: Iterable[Delta]) -> list[tuple[Any, ...]]:
    """(channel, text) pairs in order, (name, arguments) for calls. Consecutive text is joined."""
    joined: list[list[Any]] = []
    for delta in deltas:
        key = delta.tool_call or delta.channel
        if not joined or joined[-1][0] != key:
            joined.append([key, ""])
        joined[-1][1] += delta.text
    return [(key if isinstance(key, str) else key.name, text) for key, text in joined if text]


def tokens_of(deltas: Iterable[Delta]) -> list[tuple[Any, Token]]:
    """Every token in order, with its stream."""
    return [(delta.tool_call or delta.channel, token) for delta in deltas for token in delta.tokens]


def untold(pieces: Sequence[str]) -> list[Delta]:
    """Deltas of text without tokens, as from an upstream."""
    return [*(Delta(text=piece) for piece in pieces), Delta(finish_reason="stop")]


def tokenised(pieces: Iterable[str], special: Iterable[str] = ()) -> list[Delta]:
    """A token for each piece, special ones without text, and an end-of-sequence token."""
    hidden = set(special)
    tokens = [
        make_token(piece, i)._replace(text="" if piece in hidden else piece) for i, piece in enumerate(pieces)
    ]
    end = Token(9999, "", b"<eos>", -0.5)
    return [
        *(Delta(text=token.text, tokens=(token,)) for token in tokens),
        Delta(tokens=(end,), finish_reason="stop"),
    ]


def regrouped(deltas: Sequence[Delta], sizes: Iterable[int]) -> list[Delta]:
    """The same tokens in fewer deltas: `sizes` deltas become one, in turn."""
    left, grouped = list(deltas), []
    for size in sizes:
        taken, left = left[:size], left[size:]
        if taken:
            grouped.append(_merged(taken))
    return [*grouped, *left]


def _merged(deltas: Sequence[Delta]) -> Delta:
    return replace(
        deltas[-1],
        text="".join(d.text for d in deltas),
        tokens=tuple(token for d in deltas for token in d.tokens),
    )


def cut_at(text: str, places: Iterable[int]) -> list[str]:
    bounds = [0, *sorted({place % (len(text) + 1) for place in places}), len(text)]
    return [text[a:b] for a, b in pairwise(bounds) if a < b]


CUTS = st.lists(st.integers(0, 10_000), max_size=40)
SIZES = st.lists(st.integers(1, 4), max_size=40)


def split_specials(text: str, special: Sequence[str], places: Iterable[int]) -> list[str]:
    """Pieces of `text` cut anywhere but in special tokens, which stand alone."""
    if not special:
        return cut_at(text, places)
    parts = re.split("(" + "|".join(map(re.escape, special)) + ")", text)
    pieces: list[str] = []
    for part in parts:
        pieces += [part] if part in special else cut_at(part, places)
    return [piece for piece in pieces if piece]
