"""Chooses by trial which code multiplies each matrix of a model."""

import bisect
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from engine.device.kernels.cpu.native_linear import memory
from engine.device.kernels.protocol import Linear, LinearMaker
from engine.device.kernels.quantized import QuantizedWeight, Weight
from engine.device.trials import Times, TrialRecord, least_seconds, relative_slowness

logger = logging.getLogger("weir.engine")

ROWS = (1, 2, 4, 8, 16, 32, 256)
"""Numbers of rows that are timed: streams that decode, and a piece of a prompt."""
FEW = 8
"""Up to so many rows take as long as the weights take to read."""
READ, COMPUTED = 2**24, 2**22
"""Weights that are multiplied for one time: more than most caches hold, and for more than `FEW` rows."""
SMALL = 2**17
"""A matrix of fewer weights is not tried: it takes as long as its call, in any way."""
MARGIN = 1.1
"""A number of rows gets a way of its own, and a copy of the weights, if that is so many times as fast."""


class LinearTrial:
    """A `LinearMaker` that makes the fastest `Linear` on this machine for each shape."""

    def __init__(
        self,
        makers: Mapping[str, LinearMaker],
        dtype: torch.dtype,
        record: TrialRecord,
        *,
        batch_invariant: bool = True,
        in_one_order: Collection[str] = (),
    ) -> None:
        """`makers`: the ways to multiply, by name. The first one that takes a weight is used for small
        weights and for quantized ones, which torch would widen at each call. `dtype`: the type of the rows.
        `batch_invariant`: one way for every number of rows. If some of `in_one_order` take the weight, it is
        one of these: they add a row's products in the same order, whatever the other rows are."""
        self._makers = makers
        self._dtype = dtype
        self._record = record
        self._batch_invariant = batch_invariant
        self._in_one_order = in_one_order
        self._logged: set[str] = set()

    def __call__(self, weight: Weight, bias: Tensor | None, /) -> Linear:
        if isinstance(weight, QuantizedWeight) or weight.numel() < SMALL:
            return first_of(self._makers.values(), weight, bias)
        makers = {name: make for name, make in self._makers.items() if make(weight[:1], None) is not None}
        if self._batch_invariant:
            makers = {name: make for name, make in makers.items() if name in self._in_one_order} or makers
        if len(makers) == 1:
            return first_of(makers.values(), weight, bias)
        outs, ins = weight.shape
        what = f"{outs} x {ins} {weight.dtype}, {torch.get_num_threads()} threads".replace("torch.", "")
        times = self._record.times(what, makers, ROWS, partial(measured, makers, weight, self._dtype))
        names = chosen(times, batch_invariant=self._batch_invariant)
        self._log_times(what, names, times)
        made = {name: _made(makers[name], weight, bias) for name in dict.fromkeys(names.values())}
        if len(made) == 1:
            return next(iter(made.values()))
        return MixedLinear({rows: made[name] for rows, name in names.items()})

    def _log_times(self, what: str, names: Mapping[int, str], times: Times) -> None:
        if what in self._logged:
            return
        self._logged.add(what)
        chosen_names = " and ".join(dict.fromkeys(names.values()))
        times_text = "; ".join(
            f"{name} {', '.join(f'{1e6 * seconds:.0f}' for seconds in by_rows.values())}"
            for name, by_rows in times.items()
        )
        rows = ", ".join(map(str, ROWS))
        logger.info("products of %s: %s (microseconds for %s rows: %s)", what, chosen_names, rows, times_text)


class MixedLinear:
    """Multiplies by another `Linear` for each number of rows, up to the next number that was timed."""

    def __init__(self, linears: Mapping[int, Linear]) -> None:
        self._rows = sorted(linears)[:-1]
        self._linears = [linears[rows] for rows in sorted(linears)]

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        return self._linears[bisect.bisect_left(self._rows, x.shape[0])](x, residual)


def chosen(times: Times, *, batch_invariant: bool) -> dict[int, str]:
    """The name to use for each number of rows. The best for all of them together is used for all, unless
    another one may be used where it is faster by `MARGIN`."""
    best = {rows: min(by_rows[rows] for by_rows in times.values()) for rows in ROWS}
    usual = min(times, key=lambda name: relative_slowness(times[name], best))
    if batch_invariant:
        return dict.fromkeys(ROWS, usual)
    return {
        rows: usual
        if times[usual][rows] < MARGIN * best[rows]
        else min(times, key=lambda name: times[name][rows])
        for rows in ROWS
    }


def measured(makers: Mapping[str, LinearMaker], weight: Tensor, dtype: torch.dtype) -> Times:
    """The times of one call. Copies of the weights take turns, so that each is read from memory."""
    ins = weight.shape[1]
    part = weight[: READ // ins]
    copies = max(1, READ // part.numel())
    times: dict[str, dict[int, float]] = {name: {} for name in makers}
    with memory.apart():
        linears = {name: [_made(make, part, None) for _ in range(copies)] for name, make in makers.items()}
        for rows in ROWS:
            used = copies if rows <= FEW else max(1, min(copies, COMPUTED // part.numel()))
            x = torch.ones(rows, ins, dtype=dtype)
            for name, seconds in run_times({name: made[:used] for name, made in linears.items()}, x).items():
                times[name][rows] = seconds / used
    return times


def run_times(linears: Mapping[str, Sequence[Linear]], x: Tensor) -> dict[str, float]:
    """The time that all multiplications of each name take with `x`."""

    def run(some: Sequence[Linear]) -> None:
        for linear in some:
            linear(x)

    return least_seconds({name: partial(run, some) for name, some in linears.items()})


def first_of(makers: Iterable[LinearMaker], weight: Weight, bias: Tensor | None) -> Linear:
    """By the first maker that takes the weight."""
    return next(linear for make in makers if (linear := make(weight, bias)) is not None)


def _made(make: LinearMaker, weight: Tensor, bias: Tensor | None) -> Linear:
    return first_of([make], weight, bias)
