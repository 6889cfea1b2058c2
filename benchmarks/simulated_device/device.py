"""A device that takes time and computes nothing, behind a real `ModelRunner`.

It works in order, each of its streams beside the others, and the host waits only where it reads (`HostCopy`).
A step's time is looked up in a table.
The model's logits are fixed: their best tokens are words. Everything that the host does for a step is real.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle, pairwise
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from engine.device.batch import Batch
from engine.device.kv_cache import KVCache
from engine.device.transfers import HostCopy
from engine.execution.cuda_graphs import DecodeGraphs, Run
from engine.execution.model_runner import ModelRunner
from engine.protocol.options import EngineConfig
from engine.text.tokenizer import LocalTokenizer

STEP_MS = ((1, 4.0), (16, 4.5), (64, 7.0), (128, 9.0), (256, 12.0))
"""Milliseconds of a step, by the rows that decode in it: an 8B model on a large GPU, about."""
PROMPT_TOKENS_PER_MS = 50
LAUNCH_SECONDS = 4e-3
"""How long the host launches the kernels of a step that no graph covers."""
LAST_KERNEL_SECONDS = 1e-4
"""The device ends such a step so long after its last launch, or later."""
NUM_POOLS, MOST_ROWS = 8, 640
"""Sets of fixed logits, which take turns, and the rows of each."""


def milliseconds(num_rows: int) -> float:
    """A decode step's time. Rows beyond the table cost as much as prompt tokens."""
    for (fewer, low), (more, high) in pairwise(((0, STEP_MS[0][1]), *STEP_MS)):
        if num_rows <= more:
            return low + (high - low) * (num_rows - fewer) / (more - fewer)
    return high + (num_rows - more) / PROMPT_TOKENS_PER_MS


class WallClock:
    """The machine's time: for a service of several threads."""

    def now(self) -> float:
        return time.perf_counter()

    def wait(self, seconds: float) -> None:
        """Pass the time while other threads run."""
        time.sleep(seconds)

    def work(self, seconds: float) -> None:
        """Pass the time while no other thread runs."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass


class HostClock:
    """The calling thread's processor time, and the time that it says it waits. Other programs on the machine
    do not count, and nobody has to wait."""

    def __init__(self) -> None:
        self._skipped = 0.0

    def now(self) -> float:
        return time.thread_time() + self._skipped

    def wait(self, seconds: float) -> None:
        self._skipped += seconds

    work = wait


class SimulatedDevice:
    """Its time, and what was asked of it."""

    def __init__(self, clock: WallClock | HostClock, *, takes_time: bool = True, speed: float = 1.0) -> None:
        """`takes_time`: False to measure the host alone. `speed`: 2 for a device that is twice as fast."""
        self.clock = clock
        self.takes_time = takes_time
        self._speed = speed
        self._free_at: dict[str, float] = {}
        """When each stream has done all that it was given."""
        self._stream = ""
        self._num_unread = 0
        self.reset()

    def reset(self) -> None:
        self.busy_seconds = 0.0
        self.num_steps = self.num_replays = self.num_ahead = 0
        """All steps, those that replayed a graph, and those begun before the last tokens were read."""

    def replay(self, num_rows: int) -> None:
        self._work(milliseconds(num_rows) / 1e3)
        self.num_replays += 1

    def launch(self, num_rows: int, num_prompt_tokens: int) -> None:
        """The host is busy until all kernels are launched."""
        ms = milliseconds(max(1, num_rows)) + num_prompt_tokens / PROMPT_TOKENS_PER_MS
        self._work(ms / 1e3)
        if self.takes_time:
            self.clock.work(LAUNCH_SECONDS)
            last = self.clock.now() + LAST_KERNEL_SECONDS
            self._free_at[self._stream] = max(self._free_at[self._stream], last)

    def _work(self, seconds: float) -> None:
        self.num_steps += 1
        self.num_ahead += self._num_unread > 0
        seconds /= self._speed
        if self.takes_time:
            begin = max(self._free_at.get(self._stream, 0.0), self.clock.now())
            self._free_at[self._stream] = begin + seconds
            self.busy_seconds += seconds

    @contextmanager
    def stream(self, name: str) -> Iterator[None]:
        """What the thread gives the device inside goes into this stream, as by `torch.cuda.stream`."""
        before, self._stream = self._stream, name
        try:
            yield
        finally:
            self._stream = before

    @contextmanager
    def serving_copies(self) -> Iterator[None]:
        """Every `HostCopy` made inside arrives when the device has done what its stream was given before."""
        make, read = HostCopy.__init__, HostCopy.tensors
        ready: dict[HostCopy, float] = {}

        def made(copy: HostCopy, tensors: Any) -> None:
            make(copy, tensors)
            ready[copy] = self._free_at.get(self._stream, 0.0)
            self._num_unread = len(ready)

        def waited(copy: HostCopy) -> Any:
            seconds = ready.pop(copy, 0.0) - self.clock.now()
            self._num_unread = len(ready)
            if seconds > 0:
                self.clock.wait(seconds)
            return read(copy)

        with patch.object(HostCopy, "__init__", made), patch.object(HostCopy, "tensors", waited):
            yield


class _FreeModel:
    """A loaded model whose forward is the device's."""

    def __init__(self, model: Any, device: SimulatedDevice, logits: list[Tensor]) -> None:
        self._model = model
        self._device = device
        self._logits = cycle(logits)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def forward(self, batch: Batch, kv_cache: KVCache) -> Tensor:
        self._device.launch(batch.num_singles, len(batch.token_ids) - batch.num_singles)
        return next(self._logits)[: len(batch.logit_rows)]

    def capture(self, run: Run) -> Run:
        """A replay of the graph that `run` makes: of its rows, nothing is computed."""
        num_rows = len(run())

        def replay() -> Tensor:
            self._device.replay(num_rows)
            return next(self._logits)[:num_rows]

        return replay


def load_runner(device: SimulatedDevice) -> Callable[[EngineConfig], ModelRunner]:
    """In place of `ModelRunner.load`: the runner of a model that runs on `device`."""
    load = ModelRunner.load

    def load_simulated(config: EngineConfig) -> ModelRunner:
        runner = load(config)
        takes_time, device.takes_time = device.takes_time, False
        words = word_ids(LocalTokenizer.load(config.model), runner.vocab_size)
        model = _FreeModel(runner.model, device, _logits_of(words, runner.vocab_size))
        runner.model = model
        runner.graphs = DecodeGraphs(
            model.forward,
            runner.kv_cache,
            max_rows=config.max_num_seqs,
            max_model_len=runner.max_model_len,
            capture=model.capture,
        )
        device.takes_time = takes_time
        device.reset()
        return runner

    return load_simulated


def word_ids(tokenizer: LocalTokenizer, vocab_size: int) -> list[int]:
    """The tokens whose text is a space and letters."""
    texts = tokenizer.fast.decode_batch([[token_id] for token_id in range(vocab_size)])
    return [i for i, text in enumerate(texts) if text[:1] == " " and text[1:].isalpha()]


def _logits_of(words: list[int], vocab_size: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    ids, pools = torch.tensor(words), []
    for _ in range(NUM_POOLS):
        logits = torch.randn(MOST_ROWS, vocab_size, generator=generator)
        best = ids[torch.randint(len(words), (MOST_ROWS,), generator=generator)]
        logits[torch.arange(MOST_ROWS), best] += 12.0
        pools.append(logits)
    return pools
