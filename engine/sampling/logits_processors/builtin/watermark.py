"""A watermark that is found by counting ("A Watermark for Large Language Models", Kirchenbauer et al., 2023).

The previous token and a secret key choose a share `gamma` of the vocabulary, the green list. The logits of
green tokens are raised by `delta`. This is the paper's algorithm 2, with a keyed hash as in its section 5.
Whoever knows the key counts green tokens (`weir watermark detect`). In other texts about a share `gamma` of
the tokens is green; in a marked text there are more than chance allows. It works for greedy and for random
sampling. A text in which the model had no choice carries no mark, and rewording removes the mark.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from engine.sampling.logits_processors import Context, TokenIds

_BITS = 31
"""Bits of slopes, heights and codes. A product of two and a sum fit 64 bits, on any device."""
_LEVELS = 24
"""Bits that are compared with gamma. float32 holds them exactly."""


@dataclass(frozen=True, slots=True)
class Detection:
    num_scored: int
    """Pairs of neighbouring tokens; a pair that comes again does not count."""
    num_green: int
    gamma: float

    @property
    def z_score(self) -> float:
        """How many standard deviations more green tokens there are than in a text without a watermark."""
        expected = self.gamma * self.num_scored
        return (self.num_green - expected) / math.sqrt(expected * (1 - self.gamma)) if expected else 0.0

    @property
    def p_value(self) -> float:
        """The probability of as many green tokens in a text without a watermark."""
        return 0.5 * math.erfc(self.z_score / math.sqrt(2))


class GreenList:
    """Says which tokens are green after which: those whose hash with the previous token and the key is low.

    The previous token chooses a line, and the token's code is a point on it, so that a hash costs one
    multiplication and one addition for each token of the vocabulary.
    """

    def __init__(self, key: str, gamma: float = 0.25) -> None:
        """Raises `ValueError` for an empty key, or a `gamma` that is not between 0 and 1."""
        if not key:
            raise ValueError("a watermark needs a key, which nobody else should know")
        if not 0 < gamma < 1:
            raise ValueError("gamma must be between 0 and 1")
        self.gamma = gamma
        self.limit = round(gamma * (1 << _LEVELS))
        self._key = hashlib.sha256(key.encode()).digest()

    def code(self, token_id: int) -> int:
        return self._hash(b"code", token_id) >> 64 - _BITS

    def line(self, previous: int) -> tuple[int, int]:
        """The slope of its line, which is odd, and the height at 0."""
        slope, height = divmod(self._hash(b"line", previous) >> 64 - 2 * _BITS, 1 << _BITS)
        return slope | 1, height

    def is_green(self, previous: int, token_id: int) -> bool:
        slope, height = self.line(previous)
        level = (slope * self.code(token_id) + height) % (1 << _BITS) >> _BITS - _LEVELS
        return level < self.limit

    def detect(self, token_ids: Sequence[int]) -> Detection:
        pairs = set(pairwise(token_ids))
        return Detection(len(pairs), sum(self.is_green(*pair) for pair in pairs), self.gamma)

    def _hash(self, purpose: bytes, token_id: int) -> int:
        """A keyed hash of 64 bits."""
        made = hashlib.blake2b(token_id.to_bytes(8), key=self._key, person=purpose, digest_size=8)
        return int.from_bytes(made.digest())


class Watermark:
    class Shared(NamedTuple):
        green: GreenList
        codes: Tensor
        """The code of each token, `[vocab]`."""
        delta: float

    @classmethod
    def prepare(cls, context: Context, key: str, gamma: float = 0.25, delta: float = 2.0) -> Shared:
        """Raises `ValueError` for an empty key, or a `gamma` that is not between 0 and 1."""
        green = GreenList(key, gamma)
        codes = torch.tensor([green.code(i) for i in range(context.vocab_size)], device=context.device)
        return cls.Shared(green, codes, delta)

    def __init__(self, shared: Shared) -> None:
        self._green, self._codes, self._delta = shared

    def __call__(self, input_ids: TokenIds, logits: Tensor) -> None:
        slope, height = self._green.line(input_ids[-1])
        hashes = (self._codes * slope).add_(height).bitwise_and_((1 << _BITS) - 1)
        levels = hashes.bitwise_right_shift_(_BITS - _LEVELS).float()
        # 1 below the limit, 0 from it on. This is faster than a comparison.
        green = levels.neg_().add_(self._green.limit).clamp_(0, 1)
        logits.add_(green, alpha=self._delta)
