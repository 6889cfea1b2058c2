"""Masks tokens in a row of logits, `[vocab]`, in place."""

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.device.transfers import on_device
from engine.sampling.logits_processors import TokenIds

MASKED = float("-inf")


class ListedMask:
    """The base of masks that say which tokens may not come next."""

    kind = "mask"

    def forbidden(self, input_ids: TokenIds) -> Sequence[int]:
        raise NotImplementedError

    def __call__(self, input_ids: TokenIds, logits: Tensor) -> None:
        if token_ids := self.forbidden(input_ids):
            take_out(logits, as_index(token_ids, logits.device))


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
