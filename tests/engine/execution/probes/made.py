"""Made probes, and what they say of a text by plain arithmetic over transformers' own forward."""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.execution.probes.model_hash import model_hash
from engine.execution.probes.probe_file import Probe
from engine.protocol.probe_info import ProbeInfo, ProbeKind

LABELS = ("harm", "spam")
UNITS = 5


def make_probe(
    model: Path | str,
    kind: ProbeKind = "linear",
    layers: tuple[str, ...] = ("model.layers.0", "model.norm"),
    *,
    name: str = "made",
    labels: tuple[str, ...] = LABELS,
    hidden_size: int = 48,
    seed: int = 0,
) -> Probe:
    """A probe with random numbers, for the model in this folder."""
    random = torch.Generator().manual_seed(seed)
    inputs = len(layers) * hidden_size

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random) * 0.1

    tensors = {"mean": normal(inputs), "scale": torch.rand(inputs, generator=random) + 0.5}
    width = inputs
    if kind == "mlp":
        tensors |= {"hidden.weight": normal(UNITS, inputs), "hidden.bias": normal(UNITS)}
        width = UNITS
    if kind == "attention":
        tensors |= {"query.weight": normal(1, inputs), "query.bias": normal(1)}
    tensors |= {"weight": normal(len(labels), width), "bias": normal(len(labels))}
    info = ProbeInfo(name=name, kind=kind, labels=labels)
    return Probe(info, layers, str(model), model_hash(str(model)), tensors)


def save_probe(folder: Path, probe: Probe) -> str:
    path = folder / f"{probe.info.name}.safetensors"
    probe.save(path)
    return str(path)


def activations_of(model: Any, ids: list[int], layers: tuple[str, ...]) -> Tensor:
    """The outputs of transformers' modules, side by side, `[tokens, inputs]`."""
    outputs: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            outputs[name] = (output[0] if isinstance(output, tuple) else output)[0].float()

        return hook

    handles = [model.get_submodule(name).register_forward_hook(keep(name)) for name in layers]
    try:
        with torch.no_grad():
            model(torch.tensor([ids]))
    finally:
        for handle in handles:
            handle.remove()
    return torch.cat([outputs[name] for name in layers], dim=1)


def scores_of(probe: Probe, activations: Tensor) -> Tensor:
    """`[tokens, scores]`, as the probe's file describes them."""
    t = probe.tensors
    x = (activations - t["mean"]) / t["scale"]
    if probe.info.kind == "mlp":
        x = F.linear(x, t["hidden.weight"], t["hidden.bias"]).relu()
    logits = F.linear(x, t["weight"], t["bias"])
    if probe.info.kind == "attention":
        return torch.cat([F.linear(x, t["query.weight"], t["query.bias"]), logits], dim=1)
    return logits


def reference(model: Any, probes: list[Probe], ids: list[int]) -> list[list[float]]:
    """Each token's scores."""
    parts = [scores_of(probe, activations_of(model, ids, probe.layers)) for probe in probes]
    rows: list[list[float]] = torch.cat(parts, dim=1).tolist()
    return rows
