"""CUDA devices: which of them will do, whether one is lost, and its streams. Not run on a GPU yet."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial

import torch

from engine.protocol.errors import DeviceLostError


def raise_if_lost(error: BaseException) -> None:
    """Raise `DeviceLostError` from `error`, a failure of any kind, if the device is lost. A
    `DeviceLostError` is raised as it is.

    Waits until the device has computed all that it was given. A process that has not used CUDA can lose no
    device. CUDA keeps the error of a kernel that has failed (a device-side assert, an illegal address, an
    error of the memory), and returns it from every later call, also of other libraries. So the device is
    asked: the texts of errors are many, and some `torch.AcceleratorError` are of one call alone (an invalid
    argument, too little memory).
    """
    if isinstance(error, DeviceLostError):
        raise error
    try:
        synchronize()
    except RuntimeError:
        raise DeviceLostError from error


def synchronize() -> None:
    """Wait until the device has computed all that it was given. Raises `RuntimeError` if it is lost."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


LEAST_CAPABILITY = 8, 0
"""Ampere: the first that multiplies bfloat16. The tiles of prefill's attention fit into its shared memory."""


def check_capability(device: torch.device) -> None:
    """Raises `ValueError` for a GPU that is not there, or too old."""
    if device.type != "cuda":
        return
    if not torch.cuda.is_available():
        raise ValueError(f"device cuda: torch {torch.__version__} finds no CUDA device.")
    found = torch.cuda.get_device_capability(device)
    if found < LEAST_CAPABILITY:
        raise ValueError(
            f"Weir's own engine needs a GPU of compute capability {_text(LEAST_CAPABILITY)} or more, and"
            f" {torch.cuda.get_device_name(device)} has {_text(found)}: run on the CPU (--device cpu), or use"
            " another engine."
        )


def _text(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))


Turn = Callable[[], AbstractContextManager[object]]
"""Makes a context. All that a thread asks of the device inside the context goes into one stream."""


def turns_of(device: torch.device, *, only_guards: bool) -> Turn:
    """Return the function that makes a turn on the device. `only_guards`: whether guard models take it.

    Each stream of a device does its work in order, and the streams run in parallel. The served models' work
    goes into the device's first stream. Guard models have a second one, which the device prefers: a guard
    holds text until its model has judged it, so it must not wait for the served model's step.
    """
    if not only_guards or device.type != "cuda":
        return nullcontext
    return partial(torch.cuda.stream, _guards_stream(device))


@cache
def _guards_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device, priority=-1)
