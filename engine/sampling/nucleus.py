"""The tokens that top-p drops, found on a CPU without sorting the vocabulary.

To sort 8 rows of 152,000 logits takes several times as long as a small model takes to compute them. So tokens
of similar probability are counted together, in time proportional to the vocabulary. The limit falls into one
of these buckets, whose tokens are counted again in finer ones.
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
    """The tokens that `top_ps`, one for each row of `logits` `[rows, vocab]`, drop: `[rows, vocab]`, bool.

    As in transformers, the least likely tokens are dropped whose probabilities sum to `1 - top_p` at most. Of
    equal ones, those with the lower ids go first. The most likely token is always kept.
    """
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
