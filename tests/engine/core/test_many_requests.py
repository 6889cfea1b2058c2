"""Thousands of requests leave no block, no object and no memory behind, however they end."""

import gc
import logging
import random
import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.core.engine_core import EngineCore
from engine.core.input_processor import InputProcessor
from engine.protocol import EngineError, GenerationRequest, RequestError
from engine.protocol.options import EngineConfig
from engine.scheduling.sequence import ScheduledSequence, SequenceGroup
from engine.scheduling.sequence import Sequence as EngineSequence
from engine.text.tokenizer import LocalTokenizer
from tests.engine.core.block_accounting import check_blocks
from tests.helpers import slow

VOCAB_SIZE = 400
NUM_BLOCKS = 40
CONFIG = EngineConfig(
    model="none", max_num_seqs=12, max_num_batched_tokens=64, block_size=8, scheduling_policy="priority"
)


class FixedRunner:
    """Stands in for a model. The logits after a token depend only on that token."""

    device = torch.device("cpu")
    kv_cache = SimpleNamespace(num_blocks=NUM_BLOCKS, scores=None)
    model = SimpleNamespace(labels=None)
    max_model_len = 160
    vocab_size = VOCAB_SIZE
    eos_token_ids = frozenset({1})
    probes = ()

    def __init__(self) -> None:
        self.logits = torch.randn(VOCAB_SIZE, VOCAB_SIZE, generator=torch.Generator().manual_seed(0))

    def run(
        self, scheduled: Sequence[ScheduledSequence], drawn: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = () if drawn is None else drawn.tolist()
        sampled = [
            s.token_ids[-1] if s.drawn_row is None else tokens[s.drawn_row] for s in scheduled if s.is_sampled
        ]
        prompt = [s.sequence.token_ids[i] for s in scheduled for i in s.prompt_logprob_positions]
        return self.logits[sampled], self.logits[prompt]


class Load:
    """Sends requests to an engine. Some of them leave early."""

    def __init__(
        self, tokenizer: LocalTokenizer, request: Callable[..., GenerationRequest], is_async: bool
    ) -> None:
        runner, config = FixedRunner(), CONFIG.model_copy(update={"async_scheduling": is_async})
        self.core = EngineCore(runner, tokenizer, config)  # type: ignore[arg-type]
        self.processor = InputProcessor.make(tokenizer, runner, CONFIG)
        self.request = request
        self.rng = random.Random(0)
        self.openings = [[self.rng.randrange(4, 320) for _ in range(50)] for _ in range(4)]
        self.unfinished: dict[SequenceGroup, int] = {}
        self.num_failed = 0

    def come(self) -> None:
        rng = self.rng
        opening = rng.choice(self.openings)[: rng.randrange(50)]
        prompt = (*opening, *(rng.randrange(4, 320) for _ in range(rng.randint(1, 20))))
        n = rng.choice((1, 1, 1, 2, 3))
        fails = rng.random() < 0.02  # because all tokens are masked
        request = self.request(
            *[prompt] * rng.choice((1, 1, 1, 2)),
            n=n,
            best_of=n + rng.choice((0, 0, 0, 1)),
            max_tokens=rng.randint(1, 6) if fails else rng.randint(0, 6),
            echo=rng.random() < 0.2,
            logprobs=rng.choice((None, None, 0, 2)),
            cache_salt=rng.choice((None, None, "a", "b")),
            priority=rng.choice((0, 0, -1, 1)),
            min_tokens=int(fails),
            stop_token_ids=tuple(range(VOCAB_SIZE)) if fails else (),
        )
        group = self.processor.process(request)
        self.core.add(group)
        self.unfinished[group] = request.num_outputs

    def leave(self) -> None:
        if self.unfinished:
            group = self.rng.choice(list(self.unfinished))
            self.core.abort(group)
            del self.unfinished[group]

    def step(self) -> None:
        for group, output in self.core.step():
            if isinstance(output, EngineError | RequestError):
                self.num_failed += 1
                del self.unfinished[group]
            elif output.finish_reason is not None:
                self.unfinished[group] -= 1
                if not self.unfinished[group]:
                    del self.unfinished[group]

    def check(self) -> None:
        scheduler = self.core.scheduler
        tables = [s.cache.block_table for s in [*scheduler.running, *scheduler.waiting]]
        check_blocks(self.core.block_manager, tables)

    def serve(self, num_requests: int) -> None:
        for _ in range(num_requests):
            self.come()
            while len(self.unfinished) > 10 or (self.unfinished and self.rng.random() < 0.5):
                self.step()
            if self.rng.random() < 0.1:
                self.leave()
            self.check()
        while self.core.has_work:
            self.step()
        self.check()
        assert not self.unfinished
        assert self.core.block_manager.num_used == 0


def num_allocated() -> int:
    """Blocks of memory that Python has allocated."""
    gc.collect()
    return sys.getallocatedblocks()


@pytest.mark.parametrize(("count", "is_async"), [slow(1000, False), (1000, True), slow(10_000, False)])
@pytest.mark.slow
def test_many_requests_leave_nothing_behind(
    count: int,
    is_async: bool,
    tiny_model: Callable[[str], Any],
    completion_request: Callable[..., GenerationRequest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging.getLogger("weir.engine"), "disabled", True)
    load = Load(LocalTokenizer.load(str(tiny_model("llama").path)), completion_request, is_async)
    load.serve(count // 2)
    before = num_allocated()
    load.serve(count // 2)
    assert num_allocated() - before < 2000
    assert not any(type(o) in (SequenceGroup, EngineSequence) for o in gc.get_objects())
    stats = load.core.stats()
    assert min(stats.preemptions_total, stats.prefix_cache_hits_total, stats.aborted_total, load.num_failed)
