"""A step's tokens as indices on the host: one flat row, and its parts for each sequence. No torch.

Single tokens come first. Each attends by itself: the tokens of sequences that decode, and the tokens of short
spans. The chunks of prefills follow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
MAX_SPAN = 8
"""The longest span whose tokens attend as single tokens. A longer span is a chunk."""


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
    """A `Span` of given tokens."""

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

    @property
    def num_singles(self) -> int:
        return len(self.block_tables)

    @classmethod
    def of(cls, scheduled: Sequence[Span], block_size: int) -> "Layout":
        """`logit_rows` has the `num_samples` of all sequences, then their `prompt_logprob_positions`."""
        ordered = sorted(scheduled, key=lambda s: (s.num_tokens > MAX_SPAN, s.drawn_row is None))
        token_ids: list[int] = []
        positions: list[int] = []
        firsts: dict[int, int] = {}
        for s in ordered:
            firsts[id(s)] = len(token_ids)
            token_ids += s.token_ids
            positions += range(s.start, s.start + s.num_tokens)
        sampled = [
            firsts[id(s)] + i for s in scheduled for i in range(s.num_tokens - s.num_samples, s.num_tokens)
        ]
        of_prompts = [firsts[id(s)] + p - s.start for s in scheduled for p in s.prompt_logprob_positions]
        singles = [s for s in ordered if s.num_tokens <= MAX_SPAN]
        chunks = ordered[len(singles) :]
        tables = _tables([(s, s.num_tokens) for s in singles], block_size)
        chunk_tables = _tables([(s, 1) for s in chunks], block_size)
        bounds = np.array([*(firsts[id(s)] for s in chunks), len(token_ids)], dtype=np.int64)
        offsets = np.array(positions, dtype=np.int64)
        index, within = divmod(offsets, block_size)
        first = len(tables)
        blocks = tables[np.arange(first), index[:first]]
        if chunks:
            rows = np.repeat(np.arange(len(chunks)), np.diff(bounds))
            blocks = np.concatenate([blocks, chunk_tables[rows, index[first:]]])
        return cls(
            block_size=block_size,
            token_ids=np.array(token_ids, dtype=np.int64),
            positions=offsets,
            slots=blocks * block_size + within,
            logit_rows=np.array(sampled + of_prompts, dtype=np.int64),
            block_tables=tables,
            chunk_bounds=bounds,
            chunk_tables=chunk_tables,
            drawn_rows=np.array([s.drawn_row for s in ordered if s.drawn_row is not None], dtype=np.int64),
        )

    def padded(self, rows: int, scratch_block: int) -> "Layout":
        """A layout without chunks, padded to `rows` single tokens. The padding lies in `scratch_block`."""
        more = rows - self.num_singles
        return self._replace(
            token_ids=np.pad(self.token_ids, (0, more)),
            positions=np.pad(self.positions, (0, more)),
            slots=np.pad(self.slots, (0, more), constant_values=scratch_block * self.block_size),
            block_tables=np.pad(self.block_tables, ((0, more), (0, 0)), constant_values=scratch_block),
            chunk_bounds=np.array([rows], dtype=np.int64),
        )


def _tables(spans: Sequence[tuple[Span, int]], block_size: int) -> Ids:
    """Block tables as one array, padded with any block: for each span, so many equal rows as its number."""
    if not spans:
        return np.zeros((0, 0), dtype=np.int64)
    rows = [(s.block_table[: -(-(s.start + s.num_tokens) // block_size)], n) for s, n in spans]
    tables = np.zeros((sum(n for _, n in rows), max(len(b) for b, _ in rows)), dtype=np.int64)
    row = 0
    for blocks, number in rows:
        tables[row : row + number, : len(blocks)] = blocks
        row += number
    return tables
