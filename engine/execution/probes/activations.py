"""Reads the activations of texts, for those who train probes.

    runner = ModelRunner.load(EngineConfig(model="Qwen/Qwen3-0.6B"))
    for text, inputs in zip(texts, activations(runner, texts, ("model.layers.12",)), strict=True):
        ...

They are those that `ProbeHeads` scores while the model is served: the same model, code and kernels give them.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from engine.device.batch import Batch
from engine.device.kv_cache import KVCache
from engine.device.layout import TokenSpan
from engine.execution.model_runner import ModelRunner


def activations(
    runner: ModelRunner,
    texts: Sequence[Sequence[int]],
    layers: Sequence[str],
    *,
    max_num_batched_tokens: int = 2048,
) -> Iterator[Tensor]:
    """For each text of ids, in order, the outputs of `layers` side by side: `[tokens, layers * hidden]`,
    float32, on the CPU. They are a probe's inputs (`engine.execution.probes.probe_file`).

    Several texts are computed together, so a reader that counts the results sees how far the work is. Nothing
    else may use the runner meanwhile, and its cache is overwritten. Raises `ValueError` for a layer that the
    model does not have, for an empty text, and for one that is longer than `runner.max_model_len`.
    """
    for ids in texts:
        if not 0 < len(ids) <= runner.max_model_len:
            raise ValueError(f"a text has {len(ids)} tokens, and may have 1 to {runner.max_model_len}")
    collector = _Collector(tuple(layers))
    graphs, runner.graphs = runner.graphs, None  # a replay gives its outputs to nobody
    runner.model.watch(collector)
    try:
        for batch in _batches(texts, max_num_batched_tokens, runner.kv_cache):
            yield from _read(runner, collector, batch, max_num_batched_tokens)
    finally:
        runner.model.watch(runner.probe_heads)
        runner.graphs = graphs


class _Collector:
    """Implements `Capture`."""

    def __init__(self, layers: tuple[str, ...]) -> None:
        self.layers = frozenset(layers)
        self._order = layers
        self._outputs: dict[str, Tensor] = {}
        self._slots = torch.empty(0)

    def begin(self, batch: Batch, kv_cache: KVCache) -> None:
        self._slots = batch.slots

    def take(self, layer: str, x: Tensor) -> None:
        self._outputs[layer] = x.to("cpu", torch.float32, copy=True)

    def by_slot(self) -> dict[int, Tensor]:
        """The last step's inputs, by the place of the token in the cache."""
        inputs = torch.cat([self._outputs[layer] for layer in self._order], dim=1)
        return dict(zip(self._slots.tolist(), inputs, strict=True))


def _batches(
    texts: Sequence[Sequence[int]], max_num_batched_tokens: int, kv_cache: KVCache
) -> Iterator[list[Sequence[int]]]:
    """Texts that have room in the cache together, and in one step if they are not longer by themselves."""
    batch: list[Sequence[int]] = []
    num_tokens = num_blocks = 0
    for ids in texts:
        blocks = -(-len(ids) // kv_cache.block_size)
        is_full = num_tokens + len(ids) > max_num_batched_tokens or num_blocks + blocks > kv_cache.num_blocks
        if batch and is_full:
            yield batch
            batch, num_tokens, num_blocks = [], 0, 0
        batch.append(ids)
        num_tokens += len(ids)
        num_blocks += blocks
    if batch:
        yield batch


def _read(
    runner: ModelRunner, collector: _Collector, batch: list[Sequence[int]], max_num_batched_tokens: int
) -> Iterator[Tensor]:
    size = runner.kv_cache.block_size
    tables: list[range] = []
    first = 0
    for ids in batch:
        tables.append(range(first, first + -(-len(ids) // size)))
        first = tables[-1].stop
    found: dict[int, Tensor] = {}
    for start in range(0, max(map(len, batch)), max_num_batched_tokens):
        end = start + max_num_batched_tokens
        parts = zip(batch, tables, strict=True)
        runner.run([TokenSpan(start, ids[start:end], table) for ids, table in parts if start < len(ids)])
        found |= collector.by_slot()
    for ids, table in zip(batch, tables, strict=True):
        yield torch.stack([found[table.start * size + i] for i in range(len(ids))])
