"""Steps over a cache of random keys and values, with attention computed in float32 for each token."""

from typing import Any

import torch
from torch import Tensor

from engine.device.attention import AttentionBackend, Scoring
from engine.device.batch import Batch
from engine.device.kv_cache import KVCache, LayerShape
from engine.device.layout import Layout
from engine.scheduling.sequence import ScheduledSequence, SequenceGroup
from tests.engine.conftest import completion

SHAPE = LayerShape(2, 16, 16)


DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


SPANS = [(0, 1), (36, 37), (63, 64), (199, 200), (30, 34), (0, 9), (0, 70), (5, 45), (80, 150)]
"""Tokens that a step computes, from and up to: singles, a short span, chunks with and without context."""


def schedule(spans: list[tuple[int, int]], kv_cache: KVCache) -> list[ScheduledSequence]:
    """Sequences whose tokens of these spans are computed in one step, in blocks all over the cache."""
    group = SequenceGroup(completion(tuple(range(4, 20))))
    order = (
        torch.randperm(kv_cache.num_blocks - 1, generator=torch.manual_seed(1)) + 1
    )  # no sequence has the first block
    blocks = iter(order.tolist())
    scheduled = []
    for start, end in spans:
        seq = group.add(range(end), max_tokens=1, detokenizer=None)  # type: ignore[arg-type]
        seq.cache.block_table += [next(blocks) for _ in range(-(-end // kv_cache.block_size))]
        scheduled.append(ScheduledSequence(seq, start, end))
    return scheduled


class Case:
    """A cache with random keys and values everywhere, and a step over it."""

    def __init__(
        self,
        shape: LayerShape = SHAPE,
        *,
        heads: int = 4,
        block_size: int = 16,
        dtype: torch.dtype = torch.float32,
        spans: list[tuple[int, int]] = SPANS,
        **scoring: Any,
    ) -> None:
        num_blocks = sum(-(-end // block_size) for _, end in spans) + 3
        self.kv_cache = KVCache(
            {0: shape}, num_blocks=num_blocks, block_size=block_size, dtype=dtype, device=DEVICE
        )
        torch.manual_seed(2)
        for pool in (self.kv_cache.keys[0], self.kv_cache.values[0]):
            pool.normal_()
        self.batch = Batch.of(Layout.of(schedule(spans, self.kv_cache), block_size), DEVICE)
        tokens = self.batch.positions.shape[0]
        self.query = torch.randn(tokens, heads, shape.key_dim, device=DEVICE).to(dtype)
        self.key = torch.randn(tokens, shape.num_kv_heads, shape.key_dim, device=DEVICE).to(dtype)
        self.value = torch.randn(tokens, shape.num_kv_heads, shape.value_dim, device=DEVICE).to(dtype)
        self.scoring = Scoring(**scoring)

    def attend(self, backend: AttentionBackend) -> Tensor:
        attention = backend(self.kv_cache, self.batch)
        return attention(0, self.query, self.key, self.value, self.scoring)

    def expected(self) -> Tensor:
        """After `attend` has kept the step's own keys and values."""
        tables = [*self.batch.block_tables]
        for chunk in self.batch.chunks:
            tables += [chunk.block_table[0]] * (chunk.end - chunk.start)
        return torch.stack([self._expected(i, table) for i, table in enumerate(tables)])

    def _expected(self, token: int, table: Tensor) -> Tensor:
        scoring, query = self.scoring, self.query[token].float()
        end = int(self.batch.positions[token]) + 1
        begin = max(0, end - scoring.sliding_window) if scoring.sliding_window else 0
        keys, values = (
            t[0, :, begin:end].float().repeat_interleave(query.shape[0] // t.shape[1], dim=0)
            for t in self.kv_cache.gather(0, table[None])
        )
        scaling = query.shape[1] ** -0.5 if scoring.scaling is None else scoring.scaling
        scores = (keys @ query.unsqueeze(2)).squeeze(2) * scaling
        if scoring.softcap:
            scores = torch.tanh(scores / scoring.softcap) * scoring.softcap
        if scoring.s_aux is not None:
            scores = torch.cat([scores, scoring.s_aux[:, None].float()], dim=1)
        weights = scores.softmax(1)[:, : end - begin]
        return (weights.unsqueeze(1) @ values).squeeze(1)
