"""A step's tokens as indices on the host: one flat row, and its parts for each sequence. No torch.

Single tokens come first. Each attends by itself: the tokens of sequences that decode, and the tokens of short
spans. The chunks of prefills follow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
MAX_SPAN = 8
"""The longest span whose tokens attend as single tokens. A longer span is a chunk."""
MAX_JUDGED_SPAN = 32
"""The same for texts that are classified, where graphs run single tokens: a guard often judges as many tokens
together. Each token then reads the keys of its text anew, in place of the launches of a step without a graph.
Not measured on a GPU yet."""


class Span(Protocol):
    """Consecutive tokens of one sequence that a step computes."""

    @property
    def start(self) -> int:
        """The position of the first one."""

    @property
    def token_ids(self) -> Sequence[int]: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def num_samples(self) -> int:
        """The last tokens, so many, whose logits are wanted."""

    @property
    def prompt_logprob_positions(self) -> range:
        """Positions whose logits are wanted for the logprobs of a prompt."""

    @property
    def block_table(self) -> Sequence[int]: ...
    @property
    def drawn_row(self) -> int | None:
        """The row of the last draw with the span's token, which then is its only one. None: the `token_ids`
        are known."""


@dataclass(frozen=True, slots=True)
class TokenSpan:
    start: int
    token_ids: Sequence[int]
    block_table: Sequence[int]
    num_samples: int = 0
    prompt_logprob_positions: range = range(0)
    drawn_row: int | None = None

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)


class Layout(NamedTuple):
    """A `Batch` on the host. `Batch` explains the arrays, which have the same names and order."""

    block_size: int
    token_ids: Ids
    positions: Ids
    slots: Ids
    logit_rows: Ids
    block_tables: Ids
    chunk_bounds: Ids
    chunk_tables: Ids
    drawn_rows: Ids = np.zeros(0, dtype=np.int64)
    """The rows of the last draw that have the first tokens. Their `token_ids` are not read."""

    @property
    def num_singles(self) -> int:
        return len(self.block_tables)

    @classmethod
    def of(cls, scheduled: Sequence[Span], block_size: int, max_span: int = MAX_SPAN) -> "Layout":
        """A span of more than `max_span` tokens is a chunk. `logit_rows` has the `num_samples` of all
        sequences, then their `prompt_logprob_positions`."""
        drawn: list[Span] = []
        known: list[Span] = []
        chunks: list[Span] = []
        for s in scheduled:
            spans = chunks if s.num_tokens > max_span else known if s.drawn_row is None else drawn
            spans.append(s)
        ordered = [*drawn, *known, *chunks]
        token_ids = [0] * len(drawn)
        for s in (*known, *chunks):
            token_ids += s.token_ids
        ends = [*accumulate(s.num_tokens for s in ordered)]
        offsets = _offsets(ordered, ends)
        end_of = dict(zip(map(id, ordered), ends, strict=True))
        sampled: list[int] = []
        for s in scheduled:
            if n := s.num_samples:
                end = end_of[id(s)]
                sampled += range(end - n, end)
        for s in scheduled:
            if positions := s.prompt_logprob_positions:
                first = end_of[id(s)] - s.num_tokens - s.start
                sampled += range(positions.start + first, positions.stop + first)
        num_singles = len(drawn) + len(known)
        singles = ordered[:num_singles]
        tables = _tables(singles, block_size, [s.num_tokens for s in singles])
        chunk_tables = _tables(chunks, block_size, [1] * len(chunks))
        bounds = np.array([ends[num_singles - 1] if singles else 0, *ends[num_singles:]], dtype=np.int64)
        index = offsets // block_size
        first = len(tables)
        blocks = tables[np.arange(first), index[:first]]
        if chunks:
            rows = np.repeat(np.arange(len(chunks)), np.diff(bounds))
            blocks = np.concatenate([blocks, chunk_tables[rows, index[first:]]])
        return cls(
            block_size=block_size,
            token_ids=np.array(token_ids, dtype=np.int64),
            positions=offsets,
            slots=(blocks - index) * block_size + offsets,
            logit_rows=np.array(sampled, dtype=np.int64),
            block_tables=tables,
            chunk_bounds=bounds,
            chunk_tables=chunk_tables,
            drawn_rows=np.array([s.drawn_row for s in drawn], dtype=np.int64),
        )


def _offsets(spans: Sequence[Span], ends: Sequence[int]) -> Ids:
    """The position of each token. `ends`: of the spans in the flat row."""
    starts = np.array([s.start for s in spans], dtype=np.int64)
    if not spans or ends[-1] == len(spans):
        return starts
    bounds = np.array([0, *ends], dtype=np.int64)
    return np.arange(ends[-1]) + np.repeat(starts - bounds[:-1], np.diff(bounds))


def _tables(spans: Sequence[Span], block_size: int, numbers: Sequence[int]) -> Ids:
    """Block tables as one array, padded with any block: for each span, so many equal rows as its number."""
    if not spans:
        return np.zeros((0, 0), dtype=np.int64)
    widths = [-(-(s.start + s.num_tokens) // block_size) for s in spans]
    tables = np.zeros((sum(numbers), max(widths)), dtype=np.int64)
    row = 0
    for s, width, number in zip(spans, widths, numbers, strict=True):
        tables[row : row + number, :width] = s.block_table[:width]
        row += number
    return tables
