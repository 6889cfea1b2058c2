"""The streams of a CUDA device. Each stream does its work in order. The streams run beside each other.

The served models' work goes into the device's first stream. Guard models have a second one, which the device
prefers: a guard holds text until its model has judged it, so it must not wait for the served model's step.
Not run on a GPU yet.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial

import torch

Turn = Callable[[], AbstractContextManager[object]]
"""Makes a context. All that a thread asks of the device inside the context goes into one stream."""


def turns_of(device: torch.device, *, only_guards: bool) -> Turn:
    """Return the function that makes a turn on the device. `only_guards`: whether guard models take it."""
    if not only_guards or device.type != "cuda":
        return nullcontext
    return partial(torch.cuda.stream, _guards_stream(device))


@cache
def _guards_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device, priority=-1)
