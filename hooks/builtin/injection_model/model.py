"""The linear model: which places of a text have an order, at a rate of false finds that was chosen.

A window's score is the sum of its features' weights, divided by the square root of their number. The score of
a text is the highest of its windows, in any of its readings.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from hooks.builtin.injection_model.features import Features, features
from hooks.builtin.injection_model.text_readings import readings

Kind = Literal["prompt", "document"]
"""The words of a user, who may ask for anything; or a text that somebody wrote for readers."""
FALSE_RATES = (0.005, 0.01, 0.05)
"""The shares of harmless texts for which there are thresholds."""
Place = tuple[int, int]
KINDS: tuple[Kind, ...] = get_args(Kind)
WINDOWS = (24, 48)
"""The words of a window. The next one begins a quarter further on."""
FILE = "weights.npz"


@dataclass(frozen=True)
class Linear:
    """The weights for one kind of text."""

    weights: NDArray[np.float32]
    """One for each feature: `[2 ** BITS]`."""
    bias: float

    def windows(self, found: Features) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64]]]:
        """The scores of a text's windows, and the places where these begin and end: `[windows]` and
        `[windows, 2]`. A text without words has none."""
        numbers, words, places = found
        num_words = found.num_words
        if not num_words:
            return
        sums = np.bincount(words, weights=self.weights[numbers], minlength=num_words)
        counts = np.bincount(words, minlength=num_words)
        sums, counts = np.append(0, np.cumsum(sums)), np.append(0, np.cumsum(counts))
        for size in WINDOWS if num_words > WINDOWS[0] else WINDOWS[:1]:
            last = max(0, num_words - size)
            begins = np.append(np.arange(0, last, size // 4), last)
            ends = np.minimum(begins + size, num_words)
            scores = (sums[ends] - sums[begins]) / np.sqrt(counts[ends] - counts[begins]) + self.bias
            yield scores, np.stack([places[begins], places[ends]], axis=1)

    def score(self, found: Features) -> float:
        return max((float(scores.max()) for scores, _ in self.windows(found)), default=-np.inf)


@dataclass(frozen=True)
class Thresholds:
    """The least score that counts, by the length of a text: a long one has more windows that may mislead."""

    lengths: NDArray[np.float32]
    """Logarithms of numbers of words, in order: `[lengths]`."""
    scores: NDArray[np.float32]
    """The threshold at each length: `[lengths]`. Between two lengths it is between theirs, and beyond the
    last one it rises as before it."""

    def at(self, words: int) -> float:
        length = np.log(max(1, words))
        threshold = float(np.interp(length, self.lengths, self.scores))
        slope = (self.scores[-1] - self.scores[-2]) / (self.lengths[-1] - self.lengths[-2])
        return threshold + max(0.0, float((length - self.lengths[-1]) * slope))


@dataclass(frozen=True)
class InjectionModel:
    linear: Mapping[Kind, Linear]
    thresholds: Mapping[tuple[Kind, float], Thresholds]

    @classmethod
    @cache
    def load(cls) -> Self:
        """The model that ships."""
        with files(__package__).joinpath(FILE).open("rb") as file, np.load(file) as stored:
            linear = {
                kind: Linear(
                    stored[f"{kind}_weights"] * stored[f"{kind}_scale"], float(stored[f"{kind}_bias"])
                )
                for kind in KINDS
            }
            thresholds = {
                (kind, rate): Thresholds(stored[f"{kind}_lengths"], scores)
                for kind in KINDS
                for rate, scores in zip(FALSE_RATES, stored[f"{kind}_thresholds"], strict=True)
            }
        return cls(linear, thresholds)

    def places(self, text: str, kind: Kind, false_rate: float) -> tuple[Place, ...]:
        """The places of the windows that have an order, joined where they overlap. A text that shows an order
        in another reading alone is one whole place."""
        linear, thresholds = self.linear[kind], self.thresholds[kind, false_rate]
        written, *others = map(features, readings(text))
        threshold = thresholds.at(written.num_words)
        above = [places[scores > threshold] for scores, places in linear.windows(written)]
        found = [(start, end) for places in above for start, end in places.tolist()]
        if not found and any(linear.score(other) > thresholds.at(other.num_words) for other in others):
            found = [(0, len(text))]
        joined: list[Place] = []
        for start, end in sorted(found):
            if joined and start <= joined[-1][1]:
                start, end = joined[-1][0], max(end, joined.pop()[1])
            joined.append((start, end))
        return tuple(joined)
