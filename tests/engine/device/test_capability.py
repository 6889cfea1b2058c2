"""A GPU that cannot run Weir's own engine is refused at start."""

from typing import Any

import pytest
import torch

from engine.models.load import device_of
from engine.protocol.options import EngineConfig


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: request.param)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("gpu", [(7, 5), (7, 0)], indirect=True)
@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_gpu_that_is_too_old_is_refused_by_its_name(device: Any) -> None:
    with pytest.raises(ValueError, match=r"capability 8\.0 or more, and Tesla T4 has 7\.[05]: .* cpu"):
        device_of(EngineConfig(device=device))
    assert device_of(EngineConfig(device="cpu")).type == "cpu"


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("gpu", [(8, 0), (8, 9), (9, 0), (10, 0), (12, 0)], indirect=True)
def test_newer_gpus_are_taken(gpu: None) -> None:
    assert device_of(EngineConfig(device="auto")).type == "cuda"


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="finds no CUDA device"):
        device_of(EngineConfig(device="cuda"))
    assert device_of(EngineConfig(device="auto")).type == "cpu"
