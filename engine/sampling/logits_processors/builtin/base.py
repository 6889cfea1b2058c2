"""The bases of the processors that ship, and masks of tokens in a row of logits, `[vocab]`, in place."""

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


class Reading:
    """The base of processors that keep state from the tokens they read: a step reads only the new ones.

    It reads each token once, and begins again if the sequence is not longer than before: then the output was
    rewound, or a call is repeated.
    """

    def __init__(self) -> None:
        self._num_read = 0
        self.begin()

    def begin(self) -> None:
        """Forget all tokens."""

    def observe(self, token_id: int, at: int, is_prompt: bool) -> None:
        """Read the next token, which is at place `at` of the sequence."""

    def catch_up(self, input_ids: TokenIds) -> None:
        """Read the tokens that are new."""
        if len(input_ids) <= self._num_read:
            self._num_read = 0
            self.begin()
        for at in range(self._num_read, len(input_ids)):
            self.observe(input_ids[at], at, at < input_ids.num_prompt_tokens)
        self._num_read = len(input_ids)
