"""Lets an output be rewound although stages after this one keep state of it."""

from dataclasses import replace

from engine.protocol import Delta, Rewind
from engine.protocol.deltas import first_tokens, join
from engine.streams.flow import Stage


class Rewindable(Stage):
    """Feeds the same deltas, with positions on their tokens, to stages that keep state, such as parsers.

    After a rewind, an engine continues after the tokens that are kept. A stage that keeps state of the output
    would have to rewind its state too. So this one feeds the kept tokens again, from the output's beginning,
    before the output's next delta, and every stage after it starts this output anew. It stores all deltas
    that it feeds.
    """

    __slots__ = ("_counts", "_fed", "_rewound")

    def __init__(self) -> None:
        self._fed: dict[int, list[Delta]] = {}
        self._counts: dict[int, int] = {}
        self._rewound: dict[int, Rewind] = {}

    def rewind(self, rewind: Rewind) -> None:
        self._rewound[rewind.index] = rewind
        self.source.rewind(rewind)

    def feed(self, delta: Delta) -> None:
        index = delta.index
        rewind = self._rewound.pop(index, None)
        if rewind is not None:
            for kept in self._kept(rewind):
                self.next.feed(replace(kept, usage=None))
        delta = _numbered(delta, self._counts.get(index, 0))
        self._counts[index] = self._counts.get(index, 0) + delta.num_output_tokens
        self._fed.setdefault(index, []).append(delta)
        self.next.feed(delta)

    def _kept(self, rewind: Rewind) -> list[Delta]:
        kept = join(first_tokens(self._fed[rewind.index], rewind.num_tokens))
        self._fed[rewind.index] = kept
        self._counts[rewind.index] = rewind.num_tokens
        return kept


def _numbered(delta: Delta, position: int) -> Delta:
    if not delta.num_output_tokens:
        return delta
    tokens = tuple(t._replace(position=i) for i, t in enumerate(delta.tokens, position))
    return replace(delta, tokens=tokens)
