"""Phrases that must not get out, and a guard against them for each verdict and for a failure."""

import re
from typing import Any

from hooks import Chunk, Verdict, emit, hold, redact, rewind, suppress, terminate

PHRASES = ("abca", "bcd", "ddd", "e🎉e")
"""None within another, so that the first match is the match."""
MATCH = re.compile("|".join(PHRASES))


def num_undecided(text: str) -> int:
    """Length of the longest suffix that is a proper prefix of a phrase."""
    longest = max(map(len, PHRASES)) - 1
    return max(
        n
        for n in range(min(longest, len(text)) + 1)
        if any(p.startswith(text[len(text) - n :]) for p in PHRASES)
    )


def _redact(chunk: Chunk) -> Verdict:
    """Redact every phrase, and hold exactly what could still become one. At a cut, nothing can: it is
    withheld (contract 3.12)."""
    text = chunk.pending
    spans = [(found.start(), found.end(), "*") for found in MATCH.finditer(text)]
    num = num_undecided(text[spans[-1][1] :] if spans else text)
    if not chunk.is_final:
        return redact(spans, hold=num)
    return redact([*spans, (len(text) - num, len(text), "")] if chunk.is_cut and num else spans)


class RedactPhrases:
    """Redacts every phrase."""

    def __call__(self, chunk: Chunk) -> Verdict:
        return _redact(chunk)


class EndAtPhrases:
    """Ends the stream before the first phrase."""

    def __call__(self, chunk: Chunk) -> Verdict:
        found = MATCH.search(chunk.pending)
        return terminate("phrase", after=found.start()) if found else _redact(chunk)


class Observer:
    """Looks, and changes nothing."""

    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending)


def _at_phrase(chunk: Chunk, verdict: Verdict) -> Verdict:
    """`verdict` where a phrase is pending. What could become one is held."""
    return verdict if MATCH.search(chunk.pending) else _redact(chunk)


class SuppressPhrases:
    """Withholds the rest of a stream from a phrase on: what follows could make one with what was."""

    def __call__(self, chunk: Chunk) -> Verdict:
        if chunk.state.setdefault("found", False) or MATCH.search(chunk.pending):
            chunk.state["found"] = True
            return suppress("phrase")
        return _at_phrase(chunk, suppress())


class HoldAll:
    """Holds all to the end, and redacts then."""

    def __call__(self, chunk: Chunk) -> Verdict:
        return _redact(chunk) if chunk.is_final else hold()


class RewindAtPhrases:
    """Has the model go on otherwise in front of a phrase."""

    may_rewind = True

    def __call__(self, chunk: Chunk) -> Verdict:
        found = MATCH.search(chunk.pending)
        return _at_phrase(chunk, rewind("phrase", after=found.start() if found else None))


class RaiseAtPhrases:
    """Fails at a phrase, and says the phrase in its exception."""

    def __call__(self, chunk: Chunk) -> Verdict:
        if MATCH.search(chunk.pending):
            raise ValueError(chunk.text)
        return _at_phrase(chunk, suppress())


class WithholdNames:
    """Withholds calls of tools with a forbidden name."""

    def __call__(self, chunk: Chunk) -> Verdict:
        return suppress() if MATCH.search(chunk.tool_name or "") else emit(chunk.pending)


GUARDS: dict[str, Any] = {
    "redact": RedactPhrases(),
    "terminate": EndAtPhrases(),
    "suppress": SuppressPhrases(),
    "hold": HoldAll(),
    "rewind": RewindAtPhrases(),
    "raise": RaiseAtPhrases(),
}
