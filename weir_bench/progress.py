"""The progress of a run, live on a terminal."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice

from tqdm import tqdm

from weir_bench.plan import Run

_INTERVAL = 0.5  # seconds


class Progress:
    """A bar for each run, on standard error if it is a terminal. With `disable`, no bar is shown."""

    def __init__(self, *, disable: bool = False) -> None:
        self._disable = True if disable else None

    @asynccontextmanager
    async def of(self, run: Run, num_requests: int | None, repetitions: int) -> AsyncIterator[None]:
        """Show `run` until the block ends. `num_requests`: how many it has, if known."""
        nth = f" {run.repetition + 1}/{repetitions}" if repetitions > 1 else ""
        label = f"{run.target.name}, {run.level}{nth}"
        with tqdm(total=num_requests, desc=label, unit="req", disable=self._disable, leave=False) as bar:
            if bar.disable:
                yield
                return
            ticker = asyncio.get_running_loop().create_task(_tick(run, bar))
            try:
                yield
            finally:
                ticker.cancel()
                await asyncio.gather(ticker, return_exceptions=True)


async def _tick(run: Run, bar: "tqdm[None]") -> None:
    """Counts only new records, because this runs beside the measured requests."""
    num_ended = num_failed = chunks_ended = chunks_before = 0
    while True:
        for record in islice(run.records, num_ended, None):
            num_ended += 1
            num_failed += record.failure is not None
            chunks_ended += len(record.times)
        chunks = chunks_ended + sum(len(record.times) for record in run.open)
        rate = (chunks - chunks_before) / _INTERVAL
        bar.set_postfix_str(f"{len(run.open)} open, {rate:.0f} chunks/s, {num_failed} failed", refresh=False)
        bar.update(num_ended - bar.n)
        bar.refresh()
        chunks_before = chunks
        await asyncio.sleep(_INTERVAL)
