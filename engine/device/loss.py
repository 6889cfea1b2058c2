"""Finds whether a failed step means the loss of the device. After the loss, no call on the device works.

CUDA keeps the error of a kernel that has failed (a device-side assert, an illegal address, an error of the
memory), and returns it from every later call, also of other libraries. So the device is asked: the texts of
errors are many, and some `torch.AcceleratorError` are of one call alone (an invalid argument, too little
memory). Not run on a GPU yet.
"""

import torch

from engine.protocol.errors import DeviceLostError


def raise_if_lost(error: BaseException) -> None:
    """Raise `DeviceLostError` from `error`, a failure of any kind, if the device is lost. A
    `DeviceLostError` is raised as it is.

    Waits until the device has computed all that it was given. A process that has not used CUDA can lose no
    device.
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
