"""transformers without `torch.distributed`: an engine runs each of its models in one process.

With the first model's configuration, transformers imports `torch.distributed.tensor`, and so SymPy and 600
other modules: 47 MB, and seconds of the start. It does not where `is_torch_distributed_available` is false.
"""

from functools import cache

import torch
from transformers.utils.import_utils import is_torch_distributed_available


@cache
def leave_out_distributed() -> None:
    """Have transformers take this process for one without `torch.distributed`. It has no effect after
    transformers first asked: the answer is kept for the process."""
    is_available = torch.distributed.is_available
    torch.distributed.is_available = lambda: False
    try:
        is_torch_distributed_available()
    finally:
        torch.distributed.is_available = is_available
