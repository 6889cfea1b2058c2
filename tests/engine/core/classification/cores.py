"""A `ClassifierCore` that tests step by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.core.classification.core import ClassifierCore, new_text
from engine.execution.model_runner import ModelRunner
from engine.protocol.errors import EngineError
from engine.protocol.guard_models import Logits
from engine.protocol.options import EngineConfig
from engine.scheduling.sequence import SequenceGroup
from engine.text.tokenizer import LocalTokenizer
from tests.engine.core.block_accounting import check_blocks


class Classified:
    """The texts of one core. Its blocks are checked after each step."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.config = config = EngineConfig(
            model=str(path), **{"num_threads": 1, "max_num_seqs": 4} | options
        )
        tokenizer = LocalTokenizer.load(config.model)
        self.core = ClassifierCore(ModelRunner.load(config), tokenizer, config)
        self.texts: list[SequenceGroup] = []
        self.outputs: dict[SequenceGroup, list[Any]] = {}
        self.errors: dict[SequenceGroup, EngineError] = {}

    def open(self, caller: str = "", ids: Sequence[int] = ()) -> SequenceGroup:
        """A text, of which the first tokens are computed with the next ones."""
        text = new_text(self.config, caller)
        self.texts.append(text)
        self.outputs[text] = []
        if ids:
            self.core.begin(text, ids)
        return text

    def step(self) -> None:
        for text, output in self.core.step():
            if isinstance(output, EngineError):
                self.errors[text] = output
            else:
                self.outputs[text].append(output)
        self.check_blocks()

    def run(self) -> None:
        while self.core.has_work:
            self.step()

    def feed(self, text: SequenceGroup, ids: list[int]) -> torch.Tensor:
        """The logits of these tokens, computed without other texts' new tokens."""
        self.core.feed(text, ids)
        self.run()
        return rows_of(self.outputs[text][-1])

    def close(self, text: SequenceGroup) -> None:
        self.core.close(text)
        self.texts.remove(text)

    def check_blocks(self) -> None:
        tables = [seq.cache.block_table for text in self.texts for seq in text.sequences]
        check_blocks(self.core.block_manager, tables)

    def rows(self, text: SequenceGroup) -> torch.Tensor:
        """All that was delivered for the text, `[tokens, labels of all groups]`."""
        return torch.cat([rows_of(output) for output in self.outputs[text]])

    @property
    def num_computed(self) -> int:
        return self.core.stats().computed_tokens_total


def rows_of(logits: Logits) -> torch.Tensor:
    """`[tokens, labels of all groups]`."""
    return torch.from_numpy(np.concatenate([*logits.values()], axis=1))


def kv_cache_memory(path: Path, num_tokens: int) -> int:
    """The option, for so many tokens."""
    cache = ModelRunner.load(EngineConfig(model=str(path), num_threads=1)).kv_cache
    pools = [*cache.keys.values(), *cache.values.values()]
    return sum(pool[0].nbytes for pool in pools) // cache.block_size * num_tokens
