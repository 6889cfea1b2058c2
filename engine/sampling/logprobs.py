"""Logprobs of tokens and of their alternatives: computed on the device, then read on the host."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.device.transfers import HostCopy, on_device
from engine.sampling.sampling_state import Logprobs
from engine.text.alignment import LOGPROB_FLOOR


class LogprobTensors(NamedTuple):
    """The logprobs at some rows of logits. The types are int64 for ids and ranks, else float32."""

    top_ids: Tensor
    """The most likely tokens, `[rows, most]`."""
    ranks: Tensor
    """The tokens' ranks, `[rows]`. Empty: not asked for."""
    chosen: Tensor
    """The tokens' logprobs, `[rows]`."""
    top: Tensor
    """The logprobs of `top_ids`, `[rows, most]`."""
    asked: Tensor
    """The logprobs of the tokens that rows ask for by their ids, row after row, `[number]`."""


def logprob_tensors(
    logits: Tensor,
    token_ids: Tensor,
    num_top: Sequence[int],
    *,
    asked: Sequence[Sequence[int]] = (),
    ranked: bool = False,
) -> LogprobTensors:
    """See `logprobs_of`."""
    logprobs = logits.log_softmax(-1).nan_to_num(nan=LOGPROB_FLOOR).clamp_min(LOGPROB_FLOOR)
    chosen = logprobs.gather(-1, token_ids.unsqueeze(-1))
    ranks = (logprobs >= chosen).sum(-1) if ranked else token_ids[:0]
    top = logprobs.topk(min(max(num_top, default=0), logits.shape[-1]), dim=-1)
    by_id = chosen[:0, 0]
    if places := [(row, token_id) for row, ids in enumerate(asked) for token_id in ids]:
        by_id = logprobs[on_device(places, logits.device).unbind(1)]
    return LogprobTensors(top.indices, ranks, chosen.squeeze(-1), top.values, by_id)


def read_logprobs(
    tensors: LogprobTensors, num_top: Sequence[int], asked: Sequence[Sequence[int]] = ()
) -> list[Logprobs]:
    """Row by row. `tensors`: on the host. The other arguments are those that they were computed with."""
    ranks = tensors.ranks.tolist() or [None] * len(num_top)
    chosen, top_ids, top = tensors.chosen.tolist(), tensors.top_ids.tolist(), tensors.top.tolist()
    rows = zip(chosen, top_ids, top, num_top, ranks, strict=True)
    found = [
        Logprobs(logprob, list(zip(ids[:n], values[:n], strict=True)), rank)
        for logprob, ids, values, n, rank in rows
    ]
    by_id = iter(tensors.asked.tolist())
    for row, ids in enumerate(asked):
        if ids:
            found[row] = found[row]._replace(top=list(zip(ids, by_id, strict=False)))
    return found


@torch.inference_mode()
def logprobs_of(
    logits: Tensor, token_ids: Tensor, num_top: Sequence[int], *, ranked: bool = False
) -> list[Logprobs]:
    """The tokens' logprobs and their `num_top` best alternatives, row by row of `logits` `[rows, vocab]`.
    `ranked`: with the tokens' ranks."""
    tensors = logprob_tensors(logits, token_ids, num_top, ranked=ranked)
    return read_logprobs(LogprobTensors(*HostCopy(tensors).tensors()), num_top)
