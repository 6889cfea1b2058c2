"""Scores computed in C are those of torch's operators."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.device.kernels.cpu import native_library
from engine.execution.probes.heads import NativeProbeHeads, ProbeHeads
from engine.execution.probes.probe_file import Probe
from tests.engine.execution.probes.made import make_probe

HIDDEN = 52
LAYERS = ("model.layers.0", "model.norm")


@pytest.fixture
def probes(tiny_model: Any) -> list[Probe]:
    """The second one reads one layer of the first one's."""
    path = tiny_model("qwen3").path
    return [
        make_probe(path, "linear", LAYERS, name="linear", hidden_size=HIDDEN),
        make_probe(path, "attention", LAYERS[1:], name="attention", hidden_size=HIDDEN, seed=1),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("num_tokens", [1, 7, 700])
def test_scores_in_c_equal_those_of_torch(probes: list[Probe], dtype: torch.dtype, num_tokens: int) -> None:
    library = native_library.load(dtype)
    if library is None:
        pytest.skip("there is no C compiler")
    outputs = {layer: torch.randn(num_tokens, HIDDEN).to(dtype) for layer in LAYERS}
    slots = torch.randperm(num_tokens + 9)[:num_tokens]
    pools = []
    for heads in (ProbeHeads(probes, HIDDEN, torch.device("cpu")), NativeProbeHeads(probes, HIDDEN, library)):
        pool = torch.full((num_tokens + 9, heads.num_scores), torch.nan)
        heads.begin(SimpleNamespace(slots=slots), SimpleNamespace(scores=pool))  # type: ignore[arg-type]
        for layer in LAYERS:
            heads.take(layer, outputs[layer])
        pools.append(pool)
    by_torch, in_c = pools
    assert by_torch[slots].isfinite().all()
    torch.testing.assert_close(in_c, by_torch, atol=1e-5, rtol=1e-5, equal_nan=True)
