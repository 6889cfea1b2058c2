"""Decode steps as CUDA graphs: one launch for all kernels of a step. Experimental: not run on a GPU yet.

A graph reads and writes the memory that it was captured with, so its batch lies in static buffers. Each
bucket has a graph: a step of 5 tokens runs as the graph of 8. The padding writes to the cache's scratch
block, and its logits are not read. All of this except the capture itself runs on every device.
"""

from bisect import bisect_left
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

from engine.device.batch import Batch
from engine.device.kv_cache import KVCache
from engine.device.layout import Layout
from engine.device.transfers import Staging

MAX_BUCKET = 512
"""Larger steps take so long that the time of their launches does not matter."""

Forward = Callable[[Batch, KVCache], Tensor]
Run = Callable[[], Tensor]
Capture = Callable[[Run], Run]


def buckets_for(max_rows: int) -> list[int]:
    """1, 2, 4, 8 and multiples of 16, up to the first with room for `max_rows`, or to `MAX_BUCKET`."""
    buckets = [1, 2, 4, 8, *range(16, MAX_BUCKET + 1, 16)]
    return buckets[: bisect_left(buckets, max_rows) + 1]


class DecodeGraphs:
    """Graphs of a model's forward over one cache, for batches of single tokens."""

    def __init__(
        self, forward: Forward, kv_cache: KVCache, *, max_rows: int, max_model_len: int, capture: Capture
    ) -> None:
        """Captures all buckets. `max_rows`: the most tokens of a step in which all sequences decode."""
        self._buckets = buckets_for(max_rows)
        self._forward = forward
        self._kv_cache = kv_cache
        self._device = next(iter(kv_cache.keys.values())).device
        rows = self._buckets[-1]
        self._ids = torch.zeros(3, rows, dtype=torch.int64, device=self._device)
        self._padding = np.array([[0], [0], [kv_cache.scratch_block * kv_cache.block_size]])
        self._ids.copy_(torch.from_numpy(self._padding))
        self._staging = Staging(self._device)
        self._numbers = torch.arange(rows + 1, device=self._device)
        """A graph reads it at each replay, so it must live as long."""
        width = -(-max_model_len // kv_cache.block_size)
        self._tables = torch.full((rows, width), kv_cache.scratch_block, device=self._device)
        # The largest first: the smaller ones then reuse its memory.
        self._runs = {size: capture(self._run_of(size)) for size in reversed(self._buckets)}

    def has_room(self, layout: Layout) -> bool:
        """Whether a graph can run the step: it has single tokens only, and not too many."""
        rows, blocks = layout.block_tables.shape
        max_rows, max_blocks = self._tables.shape
        return bool(rows == len(layout.token_ids) <= max_rows and blocks <= max_blocks)

    def run(self, layout: Layout, drawn: Tensor | None = None) -> Tensor:
        """The logits of the layout's `logit_rows`, `[rows, vocab]`. `drawn`: see `Batch.of`."""
        rows, width = layout.block_tables.shape
        size = self._buckets[bisect_left(self._buckets, rows)]
        num_ids, num_blocks, num_drawn = 3 * size, size * width, len(layout.drawn_rows)
        sizes = num_ids, num_blocks, num_drawn, len(layout.logit_rows)
        host = self._staging.numbers(sum(sizes))
        ids, tables = host[:num_ids].reshape(3, size), host[num_ids : num_ids + num_blocks]
        ids[0, :rows], ids[1, :rows], ids[2, :rows] = layout.token_ids, layout.positions, layout.slots
        ids[:, rows:] = self._padding
        tables[: rows * width] = layout.block_tables.reshape(-1)
        tables[rows * width :] = self._kv_cache.scratch_block
        host[num_ids + num_blocks :] = np.concatenate([layout.drawn_rows, layout.logit_rows])
        there = self._staging.send(len(host)).split_with_sizes(sizes)
        self._ids[:, :size].copy_(there[0].view(3, size))
        self._tables[:size, :width].copy_(there[1].view(size, width))
        if drawn is not None:
            torch.index_select(drawn, 0, there[2], out=self._ids[0, :num_drawn])
        return self._runs[size]().index_select(0, there[3])

    def _run_of(self, size: int) -> Run:
        token_ids, positions, slots = self._ids[:, :size]
        every_row, no_chunks = self._numbers[:size], (self._numbers[size : size + 1], self._tables[:0])

        def run() -> Tensor:
            # Every run needs a new batch, because a batch keeps masks.
            tables = self._tables[:size]
            batch = Batch(token_ids, positions, slots, every_row, tables, *no_chunks)
            return self._forward(batch, self._kv_cache)

        return run


class GraphCapture:
    """Captures on the current CUDA device. All graphs share one pool of memory: only one runs at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Run) -> Run:
        on_capture_stream(run, self._device)
        graph, stream = torch.cuda.CUDAGraph(), _capture_stream(self._device)
        # Other threads of the process may use CUDA at the same time.
        with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
            logits = run()

        def replay() -> Tensor:
            graph.replay()
            return logits

        return replay


@cache
def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all graphs: libraries keep memory for each stream that they are used on."""
    return torch.cuda.Stream(device)


def on_capture_stream(run: Run, device: torch.device) -> None:
    """Compile the kernels of `run` and set up libraries, which a capture cannot do. A CPU only runs it."""
    if device.type != "cuda":
        run()
        return
    side = _capture_stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream(device).wait_stream(side)
