"""Rows of logits, and the tokens that a processor masks in one."""

from typing import Any

import torch
from torch import Tensor

from engine.protocol.options import LogitsProcessorConfig
from engine.sampling.logits_processors import Context, TokenIds
from engine.sampling.logits_processors.load import RegisteredProcessor, find_processors, register
from tests.engine.conftest import SPECIAL, VOCAB_SIZE

START, END = SPECIAL.index("<|im_start|>"), SPECIAL.index("<|im_end|>")


THINKING = {"start": "<|im_start|>", "end": "<|im_end|>"}


def registered_as(name: str, context: Context, **args: Any) -> RegisteredProcessor:
    ((config, cls),) = find_processors([LogitsProcessorConfig(name, name, args)])
    return register(config, cls, 0, context)


def row(seed: int = 0) -> Tensor:
    return torch.randn(VOCAB_SIZE, generator=torch.Generator().manual_seed(seed))


def masked_by(processor: Any, ids: list[int], num_prompt_tokens: int = 1) -> list[int]:
    """The tokens that the processor masks. It must not change any other logit."""
    logits, before = row(), row()
    processor(TokenIds(ids, num_prompt_tokens), logits)
    masked = logits.isneginf()
    assert torch.equal(logits[~masked], before[~masked])
    return masked.nonzero().flatten().tolist()


def left_by(processor: Any, ids: list[int], num_prompt_tokens: int = 1) -> list[int]:
    """The tokens that the processor does not mask."""
    masked = set(masked_by(processor, ids, num_prompt_tokens))
    return [i for i in range(VOCAB_SIZE) if i not in masked]


def ids_of(context: Context, text: str) -> list[int]:
    return context.tokenizer.encode(text, add_special_tokens=False)
