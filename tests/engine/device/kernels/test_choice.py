"""The attention that is chosen at start."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("triton")
from engine.device.kernels import choice
from engine.device.kernels.choice import choose_attention
from engine.device.kernels.gpu.triton_kernels import TritonAttention
from engine.device.kernels.probe import AttentionNeeds
from engine.device.kv_cache import LayerShape
from tests.engine.device.attention_cases import DEVICE

NEEDS = AttentionNeeds(
    4, frozenset({LayerShape(2, 16, 16)}), frozenset({None, 10}), 16, torch.float32, torch.device(DEVICE)
)


def test_a_backend_that_works_is_chosen() -> None:
    assert choose_attention("triton", NEEDS) is TritonAttention


def test_a_backend_with_wrong_results_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_zeros(query: Any, keys: Any, values: Any, *rest: Any) -> None:
        rest[-1].zero_()

    monkeypatch.setattr("engine.device.kernels.gpu.triton_kernels.decode", all_zeros)
    with pytest.raises(ValueError, match="triton does not work here: it is wrong by"):
        choose_attention("triton", NEEDS)


def test_torch_replaces_a_backend_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("out of resources")

    monkeypatch.setattr("engine.device.kernels.gpu.triton_kernels.prefill", broken)
    monkeypatch.setattr(choice, "_is_gpu", lambda device: True)
    assert choose_attention("auto", NEEDS) is None


@pytest.mark.slow
def test_triton_is_refused_without_gpu_and_interpreter(tiny_model: Callable[[str], Any]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    code = (
        "import sys; from engine.protocol.options import EngineConfig\n"
        "from engine.execution.model_runner import ModelRunner\n"
        "ModelRunner.load(EngineConfig(model=sys.argv[1], attention_backend='triton', model_impl='weir'))"
    )
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    result = subprocess.run(
        [sys.executable, "-c", code, str(tiny_model("llama").path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "attention_backend triton does not work here" in result.stderr
