"""Keeps a failure to the requests that it concerns.

`torch.AcceleratorError` is never kept: the device has lost its state, and no later step can work.
"""

import logging
from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import TypeVar, TypeVarTuple

import torch
from torch import Tensor

from engine.core.sequence import Sequence
from engine.protocol import EngineError, LogitsProcessorError
from engine.sampling.sampler import Sampled, Sampler

logger = logging.getLogger("weir.engine")

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


def failure() -> EngineError:
    """The error that a request gets. It tells nothing of the cause, which the log has."""
    return EngineError("The engine failed to generate this output.")


def attempt(doing: str, call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result | EngineError:
    """The call's result, or the error for the requests that it concerns. `doing` is for the log."""
    try:
        return call(*arguments)
    except LogitsProcessorError as error:
        return error
    except torch.AcceleratorError:
        raise
    except Exception:
        logger.exception("%s failed", doing)
        return failure()


def sample_apart(sampler: Sampler, logits: Tensor, sequences: Seq[Sequence]) -> dict[Sequence, Sampled]:
    """A token for each sequence, or the reason why it has none. If a batch fails, its halves are tried."""
    if not sequences:
        return {}
    try:
        return dict(zip(sequences, sampler.sample(logits, [s.sampling for s in sequences]), strict=True))
    except torch.AcceleratorError:
        raise
    except Exception:
        if len(sequences) == 1:
            logger.exception("sampling failed for one sequence")
            return {sequences[0]: None}
        middle = len(sequences) // 2
        return {
            **sample_apart(sampler, logits[:middle], sequences[:middle]),
            **sample_apart(sampler, logits[middle:], sequences[middle:]),
        }
