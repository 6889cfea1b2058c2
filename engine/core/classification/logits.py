"""The logits of some tokens, as hooks read them. Knows no torch."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from engine.protocol.guard_models import Logits


def by_group(rows: npt.NDArray[np.float32], labels: Mapping[str, Sequence[str]]) -> Logits:
    """`rows`: `[tokens, labels of all groups]`, the groups in the order of `labels`. They are not copied."""
    ends = accumulate(map(len, labels.values()))
    return {group: rows[:, end - len(labels[group]) : end] for group, end in zip(labels, ends, strict=True)}
