"""Taking an output back to an earlier token: what stands between an engine that can and those who ask it to.

    engine ─► rewindable ─► parsers ─► the guard        deltas
    engine ◄─ rewindable ◄─ parsers ◄─ the guard        a `Rewind`, sent in answer to one of them

An engine goes on from where an output was taken back to. Whoever keeps state of the output, as a parser does,
would have to take that back too; so `rewindable` gives the tokens that stand once more, from the first, and
everybody between it and the guard begins the output anew.
"""

from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import replace

from engine.backends.delta_queue import join
from engine.protocol import Delta, Deltas, Rewind


async def answered(deltas: Deltas, rewind: Rewind | None = None) -> Delta | None:
    """The next delta, the last one being answered with a `Rewind` or with nothing. None: there is no more."""
    try:
        return await deltas.asend(rewind)
    except StopAsyncIteration:
        return None


async def rewindable(deltas: Deltas) -> Deltas:
    """The same deltas, their tokens with positions. Sent a `Rewind`, it passes it on, and what comes next of
    that output begins with its first token again. That must not be answered by another `Rewind`.

    It keeps all that it gave. Closes `deltas` however it ends.
    """
    given: dict[int, list[Delta]] = {}
    counts: dict[int, int] = {}
    rewind: Rewind | None = None
    async with aclosing(deltas):
        while (delta := await answered(deltas, rewind)) is not None:
            if rewind is not None:
                kept = join(first_tokens(given[rewind.index], rewind.num_tokens))
                given[rewind.index] = kept
                counts[rewind.index] = rewind.num_tokens
                for one in kept:
                    yield replace(one, usage=None)
            delta = _placed(delta, counts.get(delta.index, 0))
            counts[delta.index] = counts.get(delta.index, 0) + _num_output_tokens(delta)
            given.setdefault(delta.index, []).append(delta)
            rewind = yield delta


def first_tokens(deltas: Iterable[Delta], num_tokens: int) -> list[Delta]:
    """What was said of one output up to so many of its tokens, and of its prompt. It has not ended."""
    kept = []
    for delta in deltas:
        tokens = delta.tokens
        if delta.channel != "echo":
            tokens = tokens[:num_tokens]
            num_tokens -= len(tokens)
        if tokens or delta.prompt_token_ids is not None:
            text = delta.text if len(tokens) == len(delta.tokens) else "".join(t.text for t in tokens)
            kept.append(replace(delta, text=text, tokens=tokens, finish_reason=None, stop_reason=None))
    return kept


def _placed(delta: Delta, position: int) -> Delta:
    if not _num_output_tokens(delta):
        return delta
    tokens = tuple(t._replace(position=i) for i, t in enumerate(delta.tokens, position))
    return replace(delta, tokens=tokens)


def _num_output_tokens(delta: Delta) -> int:
    return 0 if delta.channel == "echo" else len(delta.tokens)
