"""Tensors that penalties and biases keep from one draw to the next."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from engine.device.transfers import on_device


class TokenCounts:
    """Which tokens one sequence has, for its penalties."""

    def __init__(self, vocab_size: int, num_prompt_tokens: int, device: torch.device) -> None:
        self.seen = torch.zeros(vocab_size, dtype=torch.bool, device=device)
        """Whether a token is in the prompt or the output, `[vocab]`."""
        self.output = torch.zeros(vocab_size, device=device)
        """How often a token is in the output, `[vocab]`."""
        self._num_prompt_tokens = num_prompt_tokens
        self._num_counted = 0

    def update(self, token_ids: Sequence[int]) -> None:
        """Count the tokens that are new. `token_ids`: prompt and output, whole."""
        new = on_device(token_ids[self._num_counted :], self.seen.device)
        self.seen[new] = True
        generated = new[max(0, self._num_prompt_tokens - self._num_counted) :]
        self.output.index_add_(0, generated, torch.ones_like(generated, dtype=self.output.dtype))
        self._num_counted = len(token_ids)


class LogitBias:
    """A request's `logit_bias`, which may name the whole vocabulary. The request's sequences share it."""

    def __init__(self, biases: Mapping[int, float]) -> None:
        self._biases = biases
        self._tensors: tuple[Tensor, Tensor] | None = None

    def tensors(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Token ids and their biases, on the device of `logits` and in its dtype."""
        if self._tensors is None:
            ids = on_device(list(self._biases), logits.device)
            self._tensors = ids, on_device(list(self._biases.values()), logits.device, logits.dtype)
        return self._tensors
