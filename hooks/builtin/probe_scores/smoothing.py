"""Running scores, made of the scores of a stream's tokens. No I/O.

Scores of single tokens jump. A running score needs several tokens that agree, and fewer harmless streams
reach a threshold on it.

| smoothing | the score after a token |
|---|---|
| `ema` | the mean of all tokens so far; each weighs `1 - 2 / (span + 1)` times as much as the next one |
| `rolling_mean` | the mean of the last `span` tokens, or of fewer at the stream's beginning |
| `max_of_means` | the same, but not before `span` tokens; a stream of fewer is one window |

With a `span` of 1, each of them is the token's own score. A result depends on the scores alone, and not on
how they are divided among chunks.
"""

from collections import deque
from math import exp, fsum
from typing import Protocol

from engine.protocol import Smoothing


class RunningScore(Protocol):
    def add(self, score: float) -> float | None:
        """The running score after one more token. None: no score yet."""

    def end(self) -> float | None:
        """The score at the stream's end. None: the end adds no score."""


def running_score(smoothing: Smoothing, span: int) -> RunningScore:
    """`span`: tokens, 1 or more."""
    if smoothing == "ema":
        return Ema(span)
    return RollingMean(span, only_whole=smoothing == "max_of_means")


class Ema:
    """Implements `RunningScore`."""

    def __init__(self, span: int) -> None:
        self._decay = 1 - 2 / (span + 1)
        self._sum = self._weight = 0.0

    def add(self, score: float) -> float:
        self._sum = self._sum * self._decay + score
        self._weight = self._weight * self._decay + 1
        return self._sum / self._weight

    def end(self) -> None:
        return None


class RollingMean:
    """Implements `RunningScore`."""

    def __init__(self, span: int, *, only_whole: bool) -> None:
        self._last: deque[float] = deque(maxlen=span)
        self._only_whole = only_whole

    def add(self, score: float) -> float | None:
        self._last.append(score)
        return None if self._is_incomplete else self._mean

    def end(self) -> float | None:
        return self._mean if self._is_incomplete and self._last else None

    @property
    def _is_incomplete(self) -> bool:
        return self._only_whole and len(self._last) < (self._last.maxlen or 0)

    @property
    def _mean(self) -> float:
        return fsum(self._last) / len(self._last)


class AttentionMean:
    """The output of an attention probe for a growing text: the mean of its tokens' logits, weighted by the
    softmax of their weights' logits."""

    def __init__(self) -> None:
        self._greatest = float("-inf")
        self._sum = self._weight = 0.0

    def add(self, weight: float, score: float) -> float:
        """`weight`: the logit of the token's weight."""
        if weight > self._greatest:
            rescaled = exp(self._greatest - weight)
            self._greatest = weight
            self._sum *= rescaled
            self._weight *= rescaled
        share = exp(weight - self._greatest)
        self._sum += share * score
        self._weight += share
        return self._sum / self._weight
