"""A step's tokens as the model sees them: one flat row, and how it divides into sequences.

Tokens that attend one by one come first: those that decode, and the short spans of a sequence, whose tokens
each see what stands before them. The chunks of prefills follow.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.scheduler import ScheduledSequence

Ids = npt.NDArray[np.int64]
MAX_SPAN = 8
"""A span of at most so many tokens attends token by token, a longer one as a chunk."""


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """Several consecutive tokens of one sequence."""

    start: int
    """Of its tokens in the flat row; likewise `end`."""
    end: int
    num_context: int
    """Tokens of the sequence before these."""
    block_table: Tensor
    """`[1, blocks]`, enough for context and chunk."""


@dataclass(frozen=True, slots=True)
class Batch:
    """All index tensors are int64."""

    token_ids: Tensor
    """`[tokens]`."""
    positions: Tensor
    """Each token's place in its sequence, `[tokens]`."""
    slots: Tensor
    """Where each token's keys and values are kept, `[tokens]`."""
    logit_rows: Tensor
    """The tokens whose logits are wanted, `[rows]`."""
    num_singles: int
    """Leading tokens that attend one by one."""
    block_tables: Tensor
    """Theirs, `[num_singles, blocks]`, padded with any block."""
    chunks: tuple[PrefillChunk, ...]
    masks: dict[object, Tensor] = field(default_factory=dict)
    """Made by the first layer that needs one, used by the rest."""

    def single_mask(self, num_keys: int, window: int | None) -> Tensor:
        """Which keys each single token may see, `[num_singles, 1, 1, num_keys]`."""
        if window not in self.masks:
            positions = self.positions[: self.num_singles, None]
            self.masks[window] = may_see(positions, num_keys, window)[:, None]
        return self.masks[window]

    def chunk_mask(self, chunk: PrefillChunk, window: int | None) -> Tensor | None:
        """Which keys each of the chunk's tokens may see, `[tokens, keys]`; None: itself and all before it."""
        num_keys = chunk.num_context + chunk.end - chunk.start
        if not chunk.num_context and (window is None or num_keys <= window):
            return None
        key = (chunk.start, window)
        if key not in self.masks:
            positions = torch.arange(chunk.num_context, num_keys, device=self.slots.device)
            self.masks[key] = may_see(positions, num_keys, window)
        return self.masks[key]


def may_see(positions: Tensor, num_keys: int, window: int | None) -> Tensor:
    """Whether a token at each of `positions` `[...]` may see each key, `[..., num_keys]`."""
    keys, positions = torch.arange(num_keys, device=positions.device), positions.unsqueeze(-1)
    seen = keys <= positions
    return seen if window is None else seen & (keys > positions - window)


class BatchBuilder:
    """Lays out what was scheduled."""

    def __init__(self, block_size: int, device: torch.device) -> None:
        self._block_size = block_size
        self._device = device

    def build(self, scheduled: Sequence[ScheduledSequence]) -> Batch:
        """Logits are wanted of each one's `num_samples`, then of its `prompt_logprob_positions`."""
        ordered = sorted(scheduled, key=lambda s: s.num_tokens > MAX_SPAN)
        token_ids: list[int] = []
        positions: list[int] = []
        firsts: dict[int, int] = {}
        for s in ordered:
            firsts[id(s)] = len(token_ids)
            token_ids += (*s.sequence.token_ids[s.start : s.end], *s.draft)
            positions += range(s.start, s.start + s.num_tokens)
        sampled = [firsts[id(s)] + s.end - 1 - s.start + i for s in scheduled for i in range(s.num_samples)]
        of_prompts = [firsts[id(s)] + p - s.start for s in scheduled for p in s.prompt_logprob_positions]
        singles = [s for s in ordered if s.num_tokens <= MAX_SPAN]
        tables = self._tables(singles)
        num_singles = len(tables)
        offsets = np.array(positions, dtype=np.int64)
        slots = np.empty_like(offsets)
        index = np.arange(num_singles)
        slots[:num_singles] = self._slots(
            tables[index, offsets[:num_singles] // self._block_size], offsets[:num_singles]
        )
        chunks = []
        for s in ordered[len(singles) :]:
            first, last = firsts[id(s)], firsts[id(s)] + s.num_tokens
            table = np.array(s.sequence.block_table, dtype=np.int64)
            slots[first:last] = self._slots(
                table[offsets[first:last] // self._block_size], offsets[first:last]
            )
            chunks.append(PrefillChunk(first, last, s.start, self._tensor(table[None])))
        return Batch(
            token_ids=self._tensor(np.array(token_ids, dtype=np.int64)),
            positions=self._tensor(offsets),
            slots=self._tensor(slots),
            logit_rows=self._tensor(np.array(sampled + of_prompts, dtype=np.int64)),
            num_singles=num_singles,
            block_tables=self._tensor(tables),
            chunks=tuple(chunks),
        )

    def _slots(self, blocks: Ids, positions: Ids) -> Ids:
        return blocks * self._block_size + positions % self._block_size

    def _tables(self, singles: Sequence[ScheduledSequence]) -> Ids:
        """A row for each token; those of one sequence are alike."""
        width = max((-(-(s.start + s.num_tokens) // self._block_size) for s in singles), default=0)
        tables = np.zeros((sum(s.num_tokens for s in singles), width), dtype=np.int64)
        row = 0
        for s in singles:
            blocks = s.sequence.block_table[:width]
            tables[row : row + s.num_tokens, : len(blocks)] = blocks
            row += s.num_tokens
        return tables

    def _tensor(self, values: Ids) -> Tensor:
        return torch.from_numpy(values).to(self._device, non_blocking=True)
