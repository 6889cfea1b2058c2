"""The logits of some tokens, as hooks read them. Knows no torch."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import overload

import numpy as np
import numpy.typing as npt


class TokenLogits(Sequence[Mapping[str, Sequence[float]]]):
    """For each token, the logits of each group's labels. A token's mapping is made when it is read."""

    def __init__(self, rows: npt.NDArray[np.float32], labels: Mapping[str, Sequence[str]]) -> None:
        """`rows`: `[tokens, labels of all groups]`, the groups in the order of `labels`."""
        self.rows = rows
        self._labels = labels

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Mapping[str, Sequence[float]]]:
        return (self[i] for i in range(len(self)))

    @overload
    def __getitem__(self, at: int) -> Mapping[str, Sequence[float]]: ...
    @overload
    def __getitem__(self, at: slice) -> "TokenLogits": ...
    def __getitem__(self, at: int | slice) -> "Mapping[str, Sequence[float]] | TokenLogits":
        if isinstance(at, slice):
            return TokenLogits(self.rows[at], self._labels)
        row = self.rows[at].tolist()
        ends = accumulate(map(len, self._labels.values()))
        return {
            group: row[end - len(self._labels[group]) : end]
            for group, end in zip(self._labels, ends, strict=True)
        }
