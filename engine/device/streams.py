"""The streams of a CUDA device. Each does its works in order, and beside those of the others.

The served models' work goes into the device's first stream. Guard models have a second one, which the device
prefers: text that a guard holds waits for a guard model, and would else wait for the served model's step too.
Not run on a GPU yet.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial

import torch

Turn = Callable[[], AbstractContextManager[object]]
"""What a thread asks of the device inside of it goes into one stream."""


def turns_of(device: torch.device, *, only_guards: bool) -> Turn:
    """Return how models take turns on the device. `only_guards`: whether they are guard models."""
    if not only_guards or device.type != "cuda":
        return nullcontext
    return partial(torch.cuda.stream, _guards_stream(device))


@cache
def _guards_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device, priority=-1)
