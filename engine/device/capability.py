"""Weir's own engine needs a GPU of some least compute capability."""

import torch

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
