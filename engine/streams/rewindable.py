"""Adapts an engine that can rewind for readers that keep state, such as parsers.

    engine ─► rewindable ─► parsers ─► the guard        deltas
    engine ◄─ rewindable ◄─ parsers ◄─ the guard        a `Rewind`, sent in answer to a delta

After a rewind, an engine continues behind the tokens that are kept. A reader that keeps state of the output
would have to rewind its state too. So `rewindable` first yields the kept tokens again, from the output's
beginning, and every reader between the engine and the guard starts this output anew.
"""

from contextlib import aclosing
from dataclasses import replace

from engine.protocol import Delta, Deltas, Rewind
from engine.protocol.deltas import first_tokens, join, num_output_tokens


async def answered(deltas: Deltas, rewind: Rewind | None = None) -> Delta | None:
    """Answer the last delta with `rewind`, and return the next delta. None at the end."""
    try:
        return await deltas.asend(rewind)
    except StopAsyncIteration:
        return None


async def rewindable(deltas: Deltas) -> Deltas:
    """The same deltas, with positions on their tokens.

    A `Rewind` sent to this generator goes to `deltas`. The output's next deltas then begin with its first
    token again; a reader must not answer these repeated deltas with another `Rewind`.

    It keeps all deltas that it yields. It closes `deltas` however it ends.
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
            counts[delta.index] = counts.get(delta.index, 0) + num_output_tokens(delta)
            given.setdefault(delta.index, []).append(delta)
            rewind = yield delta


def _placed(delta: Delta, position: int) -> Delta:
    """The delta, its tokens numbered from `position`."""
    if not num_output_tokens(delta):
        return delta
    tokens = tuple(t._replace(position=i) for i, t in enumerate(delta.tokens, position))
    return replace(delta, tokens=tokens)
