"""Steps in which all sequences decode, and graphs for them."""

from collections.abc import Callable

import torch

from engine.device.layout import Layout
from engine.execution.cuda_graphs import DecodeGraphs, Run
from engine.execution.model_runner import ModelRunner
from engine.scheduling.sequence import ScheduledSequence, SequenceGroup
from tests.engine.conftest import completion
from tests.engine.device.recorded import RecordingPool


def graphs_of(
    runner: ModelRunner, max_rows: int = 16, capture: Callable[[Run], Run] | None = None
) -> DecodeGraphs:
    """`capture`: None: by a `RecordingPool`."""
    return DecodeGraphs(
        runner.model.forward,
        runner.kv_cache,
        max_rows=max_rows,
        max_model_len=runner.max_model_len,
        capture=capture or RecordingPool(),
    )


def decoding(runner: ModelRunner, lengths: list[int], drafts: int = 0) -> Layout:
    """Sequences of these lengths. The step computes the last token of each, and so many draft tokens."""
    blocks = iter(torch.randperm(runner.kv_cache.num_blocks, generator=torch.manual_seed(1)).tolist())
    size = runner.kv_cache.block_size
    scheduled = []
    for i, length in enumerate(lengths):
        ids = torch.randint(4, 400, (length,), generator=torch.manual_seed(i)).tolist()
        group = SequenceGroup(completion(tuple(ids)))
        seq = group.add(ids, max_tokens=5, detokenizer=None)  # type: ignore[arg-type]
        seq.cache.block_table += [next(blocks) for _ in range(-(-(length + drafts) // size))]
        scheduled.append(ScheduledSequence(seq, length - 1, length, tuple(range(7, 7 + drafts))))
    return Layout.of(scheduled, size)


def pools(runner: ModelRunner) -> list[torch.Tensor]:
    return [*runner.kv_cache.keys.values(), *runner.kv_cache.values.values()]
