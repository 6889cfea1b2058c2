"""The random numbers of draws with a seed. They follow from the seed and the token's place alone, so that a
draw does not depend on its batch, and one operator makes the numbers of all rows.

A draw's key is a hash of its seed and place. From there on splitmix64 (Steele, Lea and Flood, 2014) mixes
bits: a row's numbers are those of the generator that starts at its key.
"""

from collections.abc import Sequence
from hashlib import sha256

import torch
from torch import Tensor

from engine.device.transfers import on_device

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
"""The distance between two states of the generator, as a signed integer like all numbers of torch."""
_MIXES = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64))


def key_of(seed: int, num_rewinds: int, place: int) -> int:
    """The key, 64 bits, of the draw of the token at `place` of an output that was rewound so often."""
    return int.from_bytes(sha256(f"{seed} {num_rewinds} {place}".encode()).digest()[:8])


def share_of(key: int) -> float:
    """A number above 0, and at most 1."""
    return ((key >> 11) + 1) / 2**53


def noise_of(keys: Sequence[int], like: Tensor) -> Tensor:
    """For each of the keys, a row of numbers of the exponential distribution, as wide as `like`, all above 0.
    Each operator works number by number, so that every device gets the same bits from a key."""
    starts = on_device([key - 2**64 if key >= 2**63 else key for key in keys], like.device)
    steps = torch.arange(1, like.shape[-1] + 1, device=like.device)
    bits = torch.add(starts.unsqueeze(-1), steps, alpha=_GOLDEN)
    for shift, factor in _MIXES:
        bits.bitwise_xor_(bits >> shift).mul_(factor)
    bits.bitwise_xor_(bits >> 31)  # the shift keeps the sign, so that no number is below 0
    uniform = bits.to(like.dtype).mul_(2.0**-63).clamp_min_(2.0**-63)
    return uniform.neg_().log1p_().neg_()
