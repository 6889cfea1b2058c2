"""Masks tokens in a row of logits, `[vocab]`, in place."""

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.device.transfers import on_device

MASKED = float("-inf")


def as_index(token_ids: Sequence[int], device: torch.device) -> Tensor:
    return on_device(token_ids, device)


def keep_only(logits: Tensor, token_ids: Tensor | int) -> None:
    """Mask all tokens except these."""
    kept = logits[token_ids].clone()
    logits.fill_(MASKED)
    logits[token_ids] = kept


def take_out(logits: Tensor, token_ids: Tensor) -> None:
    """Mask these tokens."""
    logits.index_fill_(0, token_ids, MASKED)
