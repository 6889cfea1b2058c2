"""Counts of tokens, which penalties keep from one draw to the next."""

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.device.transfers import on_device
from engine.sampling.sampling_state import CountedSequence, SamplingState


class TokenCounts:
    """Which tokens the sequences with penalties have, a row for each sequence.

    A draw counts the new tokens of all its sequences together. A long sequence costs no more time, and many
    sequences cost no more operators."""

    def __init__(self, device: torch.device) -> None:
        self.seen = torch.zeros(0, 0, dtype=torch.bool, device=device)
        """Whether a token is in the prompt or the output, `[rows, vocab]`."""
        self.output = torch.zeros(0, 0, device=device)
        """How often a token is in the output, `[rows, vocab]`."""
        self._free_rows: list[int] = []

    def update(self, states: Sequence[SamplingState], vocab_size: int) -> Tensor:
        """Count the new tokens of these sequences. Returns their rows, `[sequences]`."""
        self._take_rows([s for s in states if s.counted is None], vocab_size)
        counted = [s.counted for s in states if s.counted is not None]
        rows: list[int] = []
        token_ids: list[int] = []
        is_output: list[int] = []
        for state, one in zip(states, counted, strict=True):
            new = state.token_ids[one.num_counted :]
            num_of_prompt = max(0, min(len(new), state.token_ids.num_prompt_tokens - one.num_counted))
            rows += [one.row] * len(new)
            token_ids += new
            is_output += [0] * num_of_prompt + [1] * (len(new) - num_of_prompt)
        if rows:
            at, ids, times = on_device([rows, token_ids, is_output], self.seen.device).unbind()
            self.seen.index_put_((at, ids), self.seen.new_ones(()))
            self.output.index_put_((at, ids), times.to(self.output.dtype), accumulate=True)
        for state, one in zip(states, counted, strict=True):
            one.num_counted = len(state.token_ids)
        return on_device([one.row for one in counted], self.seen.device)

    def _take_rows(self, states: Sequence[SamplingState], vocab_size: int) -> None:
        """Give each of these sequences an empty row."""
        if not states:
            return
        if (num_missing := len(states) - len(self._free_rows)) > 0:
            self._grow(max(num_missing, len(self.seen)), vocab_size)
        taken = [self._free_rows.pop() for _ in states]
        index = on_device(taken, self.seen.device)
        self.seen.index_fill_(0, index, False)
        self.output.index_fill_(0, index, 0)
        for state, row in zip(states, taken, strict=True):
            state.counted = CountedSequence(row, self._free_rows)

    def _grow(self, num_rows: int, vocab_size: int) -> None:
        before = len(self.seen)
        seen, output = (
            torch.cat([old.view(before, vocab_size), old.new_zeros(num_rows, vocab_size)])
            for old in (self.seen, self.output)
        )
        self.seen, self.output = seen, output
        self._free_rows += reversed(range(before, before + num_rows))
