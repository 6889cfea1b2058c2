"""A step's tokens as the model gets them: a `Layout` on the device, and masks."""

from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor

from engine.device.layout import Layout
from engine.device.transfers import sent


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """Several consecutive tokens of one sequence."""

    start: int
    """The chunk's first token in the flat row."""
    end: int
    """The end of the chunk's tokens in the flat row."""
    num_context: int
    """Tokens of the sequence before the chunk."""
    block_table: Tensor
    """The blocks of context and chunk, `[1, blocks]`."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's tokens in a flat row: single tokens first, then chunks. All index tensors are int64."""

    token_ids: Tensor
    """`[tokens]`."""
    positions: Tensor
    """Each token's position in its sequence, `[tokens]`."""
    slots: Tensor
    """The place of each token's keys and values in the cache, `[tokens]` (see `KVCache`)."""
    logit_rows: Tensor
    """The tokens whose logits are wanted, `[rows]`."""
    block_tables: Tensor
    """The blocks of each single token's sequence, `[num_singles, blocks]`, padded with any block."""
    chunk_bounds: Tensor
    """The beginning of each chunk in the flat row, and the end of the last, `[chunks + 1]`."""
    chunk_tables: Tensor
    """The blocks of each chunk's sequence, `[chunks, blocks]`, padded with any block."""
    chunks: tuple[PrefillChunk, ...] = ()
    masks: dict[object, Tensor] = field(default_factory=dict)
    """Masks that a layer has made. Later layers use them again."""

    @classmethod
    def of(cls, layout: Layout, device: torch.device, drawn: Tensor | None = None) -> "Batch":
        """The layout on `device`. On CUDA, the host does not wait for the copy.

        `drawn`: the tokens of the last draw, `[rows]`. Those of the layout's `drawn_rows`, in order, are its
        first tokens.
        """
        _, *arrays = layout
        tensors = [torch.from_numpy(a) for a in arrays] if device.type == "cpu" else sent(arrays, device)
        ids, positions, slots, rows, tables, bounds, chunk_tables, drawn_rows = tensors
        if drawn is not None:
            torch.index_select(drawn, 0, drawn_rows, out=ids[: len(drawn_rows)])
        chunks = _chunks(layout, chunk_tables)
        return cls(ids, positions, slots, rows, tables, bounds, chunk_tables, chunks)

    @property
    def num_singles(self) -> int:
        """Single tokens. Each attends by itself."""
        return self.block_tables.shape[0]

    def single_mask(self, num_keys: int, window: int | None) -> Tensor:
        """Which keys each single token may see, `[num_singles, 1, 1, num_keys]`."""
        if window not in self.masks:
            positions = self.positions[: self.num_singles, None]
            self.masks[window] = may_see(positions, num_keys, window)[:, None]
        return self.masks[window]

    def chunk_mask(self, chunk: PrefillChunk, window: int | None) -> Tensor | None:
        """Which keys each token of the chunk may see, `[tokens, keys]`. None: itself and all before it."""
        num_keys = chunk.num_context + chunk.end - chunk.start
        if not chunk.num_context and (window is None or num_keys <= window):
            return None
        key = (chunk.start, window)
        if key not in self.masks:
            positions = torch.arange(chunk.num_context, num_keys, device=self.slots.device)
            self.masks[key] = may_see(positions, num_keys, window)
        return self.masks[key]


def may_see(positions: Tensor, num_keys: int, window: int | None) -> Tensor:
    """Whether a token at each of the `positions` `[...]` may see each key, `[..., num_keys]`."""
    keys, positions = torch.arange(num_keys, device=positions.device), positions.unsqueeze(-1)
    seen = keys <= positions
    return seen if window is None else seen & (keys > positions - window)


def _chunks(layout: Layout, tables: Tensor) -> tuple[PrefillChunk, ...]:
    if not len(layout.chunk_tables):
        return ()
    bounds = layout.chunk_bounds.tolist()
    chunks = []
    for i, (start, end) in enumerate(pairwise(bounds)):
        num_context = int(layout.positions[start])
        num_blocks = -(-(num_context + end - start) // layout.block_size)
        chunks.append(PrefillChunk(start, end, num_context, tables[i : i + 1, :num_blocks]))
    return tuple(chunks)
