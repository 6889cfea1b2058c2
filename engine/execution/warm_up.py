"""The memory that a model's cache may have. On a GPU, the steps that take the most memory are run first.

They run over a cache of one block, in which all texts lie: to the kernels, a block that occurs many times in
a table is as good as many blocks. Their results mean nothing.

Rare steps take more: prompts that want logprobs, and, where attention gathers keys, many short prompts after
long cached beginnings. If memory does not suffice, such a step fails its newest requests.
"""

from collections.abc import Sequence
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from engine.device.batch import Batch
from engine.device.budget import StepMemory, budget_of
from engine.device.kv_cache import KVCache
from engine.device.layout import Layout
from engine.device.memory import DeviceMemory, free_host_memory
from engine.execution.cuda_graphs import buckets_for, on_capture_stream
from engine.models.load import Model, device_of
from engine.protocol import SamplingParams
from engine.protocol.options import EngineConfig
from engine.sampling.logits_processors import TokenIds
from engine.sampling.sampler import Sampler
from engine.sampling.sampling_state import SamplingState

COSTLY = SamplingParams(
    temperature=0.9, top_p=0.9, min_p=0.01, repetition_penalty=1.1, frequency_penalty=0.1, logprobs=20
)
"""Every stage of a draw takes part that takes much memory. Top-k would leave top-p little to sort."""


class WarmUp:
    """The largest steps of one model."""

    def __init__(self, model: Model, config: EngineConfig, max_model_len: int, num_scores: int = 0) -> None:
        """`num_scores`: as in `KVCache`."""
        self._model = model
        self._config = config
        self._max_model_len = max_model_len
        self._num_scores = num_scores
        self._max_decodes = config.max_num_seqs * (1 + config.num_speculative_tokens)

    @cached_property
    def _kv_cache(self) -> KVCache:
        return KVCache(
            self._model.layers,
            num_blocks=1,
            block_size=self._config.block_size,
            dtype=self._model.dtype,
            device=self._model.device,
            num_scores=self._num_scores,
        )

    @torch.inference_mode()
    def measure(self, memory: DeviceMemory) -> StepMemory:
        """Raises `torch.OutOfMemoryError` if not even one step has room."""
        self.run_largest_steps()  # also compiles kernels and sets up libraries, whose memory does not count
        step = memory.peak_of(self.run_largest_steps)
        if self._config.enforce_eager or not self._model.can_be_captured:
            return StepMemory(step)
        *smaller, largest = buckets_for(self._max_decodes)
        # What libraries keep for the stream of captures is held from now on, so that the budget counts it.
        on_capture_stream(partial(self._decodes, largest), self._model.device)
        num_bytes = self._decodes(1).nbytes
        # All graphs compute in the memory of the largest one, and each keeps its logits.
        return StepMemory(step, memory.peak_of(lambda: self._decodes(largest)) + sum(smaller) * num_bytes)

    @torch.inference_mode()
    def run_largest_steps(self) -> None:
        """One full of prompts, and one in which as many sequences decode as may; the rest of it are prompts.
        All texts have the longest context, and a token is drawn for every sequence."""
        num_tokens = self._config.max_num_batched_tokens
        for num_decodes in (0, min(num_tokens, self._max_decodes)):
            self._run(num_decodes, num_tokens)

    def _run(self, num_decodes: int, num_tokens: int) -> None:
        if self._model.labels is not None:  # a classifier gives logits for all tokens, and draws none
            self._forward(num_decodes, num_tokens, num_tokens).float()
            return
        num_rows = min(num_tokens, self._max_decodes)
        logits = self._forward(num_decodes, num_tokens, num_rows).float()
        sampler = Sampler(self._model.device, logprobs_mode=self._config.logprobs_mode, seed=0)
        sampler.sample(logits, [_state() for _ in range(num_rows)])

    def _decodes(self, num_sequences: int) -> Tensor:
        """A step in which so many sequences decode. Returns the logits `[sequences, vocab]`."""
        return self._forward(num_sequences, num_sequences, num_sequences)

    def _forward(self, num_decodes: int, num_tokens: int, num_rows: int) -> Tensor:
        max_len, block_size = self._max_model_len, self._config.block_size
        layout = longest_texts(num_decodes, num_tokens, num_rows, max_len, block_size)
        return self._model.forward(Batch.of(layout, self._model.device), self._kv_cache)


def room_for_cache(warm_ups: Sequence[WarmUp], config: EngineConfig) -> int:
    """Bytes for the keys and values of models that are loaded and share one cache. Raises `ValueError` if no
    memory is left for them."""
    part = 8 if config.only_guards else 1
    if (budget := budget_of(device_of(config))) is None:
        return free_host_memory() // max(part, 4)
    needs = [warm_up.measure(budget.memory) for warm_up in warm_ups]
    both = StepMemory(max(n.step for n in needs), sum(n.graphs for n in needs))
    return budget.room(config.gpu_memory_utilization, both, only_guards=config.only_guards) // part


def longest_texts(
    num_decodes: int, num_tokens: int, num_rows: int, max_model_len: int, block_size: int
) -> Layout:
    """Sequences that decode, and then as few prompts as have the other tokens. Each text has `max_model_len`
    tokens, which end with those that the step computes. The first `num_rows` have logits."""
    starts = np.arange(num_decodes, num_tokens, max_model_len)
    bounds = np.append(starts, num_tokens)
    prompts = (np.arange(max_model_len - size, max_model_len) for size in np.diff(bounds))
    positions = np.concatenate([np.full(num_decodes, max_model_len - 1), *prompts])
    width = -(-max_model_len // block_size)
    return Layout(
        block_size=block_size,
        token_ids=np.zeros(num_tokens, dtype=np.int64),
        positions=positions,
        slots=positions % block_size,
        logit_rows=np.arange(num_rows),
        block_tables=np.zeros((num_decodes, width), dtype=np.int64),
        chunk_bounds=bounds,
        chunk_tables=np.zeros((len(starts), width), dtype=np.int64),
    )


def _state() -> SamplingState:
    return SamplingState("warm-up", COSTLY, TokenIds([0], num_prompt_tokens=1), frozenset(), seed=0)
