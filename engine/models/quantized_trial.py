"""Says at load whether weights of 8 or 4 bits are multiplied faster here than weights of the rows' type."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial

import torch

from engine.device.kernels.cpu.native_linear import memory
from engine.device.kernels.protocol import LinearMaker
from engine.device.kernels.quantized import Weight
from engine.device.trials import Times, TrialRecord, relative_slowness
from engine.models.linear_trial import first_of, run_times
from engine.models.quantized import quantize_int4, quantize_int8

logger = logging.getLogger("weir.engine")

OUTS, INS, COPIES = 4096, 1024, 4
"""The matrices that are tried. Together they are more than most caches hold."""
ROWS = (1, 4)
SMALLER, PLAIN = "smaller", "plain"


def log_speed(
    quantization: str,
    group_size: int,
    makers: Mapping[str, LinearMaker],
    dtype: torch.dtype,
    record: TrialRecord,
) -> None:
    """Try a matrix that is rounded to `quantization`, beside the same matrix as it is. `makers`: as for
    `LinearTrial`. A warning if the rounded one is slower."""
    name = str(dtype).removeprefix("torch.")
    what = f"{quantization} beside {name}, groups of {group_size}, {torch.get_num_threads()} threads"
    measure = partial(_measured, quantization, group_size, list(makers.values()), dtype)
    times = record.times(what, (SMALLER, PLAIN), ROWS, measure)
    slowness = relative_slowness(times[SMALLER], times[PLAIN])
    text = f"products of few rows take {slowness:.2f} times as long in {quantization} as in {name}"
    if slowness > 1:
        logger.warning("%s saves memory and no time here: %s", quantization, text)
    else:
        logger.info("%s", text)


def _measured(quantization: str, group_size: int, makers: Sequence[LinearMaker], dtype: torch.dtype) -> Times:
    plain = torch.randn(OUTS, INS).to(dtype)
    smaller = quantize_int8(plain) if quantization == "int8" else quantize_int4(plain, group_size)
    weights: dict[str, Weight] = {SMALLER: smaller, PLAIN: plain}
    times: dict[str, dict[int, float]] = {name: {} for name in weights}
    with memory.apart():
        linears = {
            name: [first_of(makers, weight, None) for _ in range(COPIES)] for name, weight in weights.items()
        }
        for rows in ROWS:
            for name, seconds in run_times(linears, torch.ones(rows, INS, dtype=dtype)).items():
                times[name][rows] = seconds
    return times
