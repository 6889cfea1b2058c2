"""Keeps a failure to the requests that it concerns.

The loss of the device concerns all requests, so it is raised: no later step can work. A step that finds too
little memory runs again without its newest requests.
"""

import logging
from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import TypeVar, TypeVarTuple

import torch
from torch import Tensor

from engine.device.cuda import raise_if_lost
from engine.device.transfers import rows_of
from engine.protocol import EngineError
from engine.protocol.errors import DeviceLostError
from engine.sampling.sampler import Drawn, Sampled, Sampler
from engine.scheduling.sequence import ScheduledSequence, Sequence, SequenceGroup

logger = logging.getLogger("weir.engine")

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


def failure() -> EngineError:
    """The error that a request gets. Only the log has the cause."""
    return EngineError("The engine failed to generate this output.")


def out_of_memory() -> EngineError:
    """The error of a request that was dropped to free memory for other requests."""
    return EngineError("The engine has too little memory for this request now.", status=503)


def attempt(doing: str, call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result | EngineError:
    """The call's result, or the error for the requests that it concerns. `doing` is for the log, which has a
    traceback unless memory is short. Raises `DeviceLostError`."""
    try:
        return call(*arguments)
    except DeviceLostError:
        raise
    except EngineError as error:
        return error
    except Exception as error:
        raise_if_lost(error)
        if _is_out_of_memory(error):
            logger.warning("%s finds too little memory", doing)
            return out_of_memory()
        logger.exception("%s failed", doing)
        return failure()


def run_what_fits(
    run: Callable[[Seq[ScheduledSequence]], Result], scheduled: list[ScheduledSequence]
) -> tuple[Result | None, list[ScheduledSequence], set[SequenceGroup]]:
    """The step's result, the sequences that it was run with, and the requests that found no memory.

    Each time that memory runs out, the newest requests are left out: one, then two more, then four more, and
    `run` is called again. No result: memory does not suffice for the oldest request alone. Other errors are
    raised.
    """
    dropped: set[SequenceGroup] = set()
    num_dropped = 1
    while scheduled:
        try:
            return run(scheduled), scheduled, dropped
        except Exception as error:
            if not _is_out_of_memory(error):
                raise
            logger.exception("a step of %d sequences finds too little memory", len(scheduled))
        # Not in the handler: the error holds the frames of the step, and they hold tensors.
        torch.cuda.empty_cache()  # libraries find no memory that torch keeps for itself
        newest_first = sorted({s.sequence.group for s in scheduled}, key=lambda group: -(group.arrival or 0))
        dropped.update(newest_first[:num_dropped])
        scheduled = [s for s in scheduled if s.sequence.group not in dropped]
        num_dropped *= 2
    return None, scheduled, dropped


def _is_out_of_memory(error: Exception) -> bool:
    """Libraries have errors of their own: torch's allocator of the host's memory, CUDA's driver for pinned
    memory and graphs, Triton, cuBLAS."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    signs = ("DefaultCPUAllocator", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


def draw_apart(
    sampler: Sampler, logits: Tensor, rows: Seq[int], sequences: Seq[Sequence]
) -> list[tuple[Seq[Sequence], Drawn | EngineError]]:
    """A draw for all sequences, each from its row of `logits`. If it fails, its halves are tried: they need
    less memory, too. One sequence that fails gets an error. Raises `DeviceLostError`."""
    if not sequences:
        return []
    try:
        drawn = sampler.draw(rows_of(logits, rows), [s.sampling for s in sequences])
        return [(sequences, drawn)]
    except Exception as error:
        raise_if_lost(error)
        is_out_of_memory = _is_out_of_memory(error)
        if len(sequences) == 1:
            logger.exception("sampling failed for one sequence")
            return [(sequences, out_of_memory() if is_out_of_memory else failure())]
    if is_out_of_memory:
        torch.cuda.empty_cache()
    middle = len(sequences) // 2
    return [
        *draw_apart(sampler, logits, rows[:middle], sequences[:middle]),
        *draw_apart(sampler, logits, rows[middle:], sequences[middle:]),
    ]


def read_apart(sequences: Seq[Sequence], drawn: Drawn | EngineError) -> dict[Sequence, Sampled]:
    """The token of each sequence, or the error in its place. Waits for the device. Raises
    `DeviceLostError`."""
    read = drawn if isinstance(drawn, EngineError) else attempt("a draw", drawn.read)
    if isinstance(read, EngineError):
        return dict.fromkeys(sequences, read)
    return dict(zip(sequences, read, strict=True))
