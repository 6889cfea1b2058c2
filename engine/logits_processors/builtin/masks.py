"""What several masks do to a row of logits, `[vocab]`, in place."""

import torch
from torch import Tensor

MASKED = float("-inf")


def keep_only(logits: Tensor, token_ids: int | Tensor) -> None:
    """Mask all other tokens."""
    kept = logits[token_ids].clone()
    logits.fill_(MASKED)
    logits[token_ids] = kept


def take_out(logits: Tensor, token_ids: list[int]) -> None:
    """Mask these tokens."""
    if token_ids:
        logits[torch.tensor(token_ids, device=logits.device)] = MASKED
