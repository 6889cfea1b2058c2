"""The kernels in Triton compile for GPUs that are not there, and fit into them: `make test-gpu-compile`."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from engine.device.attention import Scoring
from engine.device.kernels.gpu import triton_prefill
from engine.device.kernels.gpu.triton_prefill import FEW_WARPS, MANY_WARPS, prefill
from tests.helpers import slow

SHARED = {80: 163, 89: 99, 90: 227, 100: 227, 120: 99}
"""KiB of shared memory that a program may have, by compute capability (CUDA's programming guide)."""


def compiled(capability: int, which: str, cache: Path) -> list[dict[str, Any]]:
    script = Path(__file__).with_name("compile_kernels.py")
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    result = subprocess.run(
        [sys.executable, str(script), str(capability), which],
        cwd=Path(__file__).parents[5],
        env=environment | {"TRITON_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def is_tried_only(kernel: dict[str, Any]) -> bool:
    """Whether prefill launches the kernel once, and then one with more warps."""
    return bool(kernel["name"] == "_prefill" and kernel["num_warps"] == FEW_WARPS and kernel["spills"])


@pytest.mark.timeout(3600)  # seconds: 300 kernels, each of which takes one or more
@pytest.mark.parametrize(
    ("capability", "which"), [slow(89, "one"), *(slow(capability, "models") for capability in SHARED)]
)
def test_every_kernel_fits_into_the_gpu(capability: int, which: str, tmp_path: Path) -> None:
    kernels = compiled(capability, which, tmp_path)
    assert {k["name"] for k in kernels} == {
        "_decode",
        "_reduce",
        "_prefill",
        "_rotate_and_keep",
        "_silu_and_mul",
    }
    assert len(kernels) > (200 if which == "models" else 6)
    for kernel in kernels:
        assert kernel["shared"] <= SHARED[capability] * 1024, kernel
        assert not kernel["spills"] or is_tried_only(kernel), kernel


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
def test_a_kernel_is_compiled_once_whatever_the_step(capability: int, tmp_path: Path) -> None:
    """Once for a type and what a layer asks of it."""
    kernels = [k for k in compiled(capability, "steps", tmp_path) if not is_tried_only(k)]
    assert Counter(k["name"] for k in kernels) == {
        "_decode": 2 * 4 * 2,
        "_reduce": 2 * 2,
        "_prefill": 2 * 4,
        "_rotate_and_keep": 2 * 2,
        "_silu_and_mul": 2,
    }


@pytest.mark.parametrize("spills", [0, 28])
def test_prefill_takes_more_warps_once_few_were_too_few(spills: int, monkeypatch: pytest.MonkeyPatch) -> None:
    warps: list[int] = []

    class Kernel:
        def __getitem__(self, grid: Any) -> Any:
            return self

        def __call__(self, *args: Any, num_warps: int, **constants: Any) -> Any:
            warps.append(num_warps)
            return SimpleNamespace(n_spills=spills)

    monkeypatch.setattr(triton_prefill, "_prefill", Kernel())
    monkeypatch.setattr(triton_prefill, "_num_warps", {})
    query, keys = torch.zeros(3, 4, 16), torch.zeros(5, 2, 16, 16)
    ids = torch.zeros(3, dtype=torch.int64)
    for scoring in (Scoring(), Scoring(), Scoring(sliding_window=9), Scoring()):
        prefill(query, keys, keys, ids.view(1, 3), ids[:2], ids, 3, scoring, query)
    then = MANY_WARPS if spills else FEW_WARPS
    assert warps == [FEW_WARPS, then, FEW_WARPS, then]
