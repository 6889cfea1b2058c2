"""The tokens that top-p drops, found on a CPU without sorting the vocabulary. Elsewhere no more tokens are
sorted than top-k has left.

To sort 8 rows of 152,000 logits takes a CPU several times as long as a small model takes to compute them. So
tokens of similar probability are counted together, in time proportional to the vocabulary. The limit falls
into one of these buckets, whose tokens are counted again in finer ones.

As in transformers, the least likely tokens are dropped whose probabilities sum to `1 - top_p` at most. Of
equal ones, those with the lower ids go first. The most likely token is always kept.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Probs = npt.NDArray[np.float32]

SHIFTS = 19, 7, 0
"""Lowest bits of a probability that its bucket ignores, from the widest buckets to the finest. A float32 that
is not negative keeps its order when its bits are read as an integer."""


def dropped_by_top_p(logits: Tensor, top_ps: Sequence[float]) -> Tensor:
    """The tokens that `top_ps`, one for each row of `logits` `[rows, vocab]` on a CPU, drop: `[rows, vocab]`,
    bool."""
    probs = logits.softmax(-1).numpy()
    dropped = np.empty(probs.shape, dtype=np.bool_)
    for row, top_p in enumerate(top_ps):
        _drop(dropped[row], probs[row], np.float32(1 - top_p))
    return torch.from_numpy(dropped)


def _drop(dropped: npt.NDArray[np.bool_], probs: Probs, limit: np.float32) -> None:
    """Fill `dropped` for one row. `limit`: the most that the dropped tokens sum to."""
    before, keeps_any = 0.0, False
    ids: npt.NDArray[np.intp] | None = None
    for shift in SHIFTS:
        buckets = probs.view(np.uint32) >> np.uint32(shift)
        buckets -= buckets.min()
        sums = before + np.bincount(buckets, weights=probs).cumsum()  # to the end of each bucket, in float64
        at = min(int(np.searchsorted(sums.astype(np.float32), limit, side="right")), len(sums) - 1)
        before = float(sums[at - 1]) if at else before
        keeps_any |= at < len(sums) - 1
        inside = np.flatnonzero(buckets == at)
        if ids is None:
            np.less(buckets, at, out=dropped)
            ids = inside
        else:
            dropped[ids] = buckets < at
            ids = ids[inside]
        probs = probs[inside]
    assert ids is not None
    # All that are left are equally likely.
    are_dropped = (before + probs.cumsum(dtype=np.float64)).astype(np.float32) <= limit
    are_dropped[-1] &= keeps_any
    dropped[ids] = are_dropped


def dropped_by_top_p_of(num_sorted: int, logits: Tensor, limits: Tensor) -> Tensor:
    """The same on any device, without waiting for it. `limits` `[rows, 1]`: the most that the dropped tokens
    sum to. `num_sorted`: the most likely tokens of a row, so many, are sorted. All others are masked, or as
    likely as the least likely of these."""
    probs = logits.softmax(-1)
    # In ascending order, `[rows, num_sorted]`.
    best = probs.sort(-1).values if num_sorted == probs.shape[-1] else probs.topk(num_sorted).values.flip(-1)
    least = best[:, :1]
    num_others = (probs > 0).sum(-1, keepdim=True) - (best > 0).sum(-1, keepdim=True)
    dropped = best.cumsum(-1) + num_others * least <= limits
    dropped[:, -1].fill_(False)
    last = best.gather(-1, dropped.sum(-1, keepdim=True))  # the least likely one that is kept
    num_dropped = (dropped & (best == last)).sum(-1, keepdim=True)
    others_dropped = torch.minimum(num_others, (limits / least).floor())
    num_dropped = num_dropped + others_dropped * (last == least)
    are_equal = probs == last
    return (probs < last) | (are_equal & (are_equal.cumsum(-1, dtype=torch.int32) <= num_dropped))
