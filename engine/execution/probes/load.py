"""Loads the probes that a configuration names, for the model that it names."""

from collections.abc import Iterable

import torch

from engine.device.kernels.cpu import native_library
from engine.execution.probes.heads import NativeProbeHeads, ProbeHeads
from engine.execution.probes.model_hash import model_hash
from engine.execution.probes.probe_file import Probe, load_probe
from engine.protocol.demo import PROBES
from engine.protocol.options import EngineConfig


def read_probes(files: Iterable[str]) -> list[Probe]:
    """`files`: paths, and names of probes that ship. Raises `ValueError` and `OSError` as `load_probe`."""
    return [load_probe(PROBES.get(file, file)) for file in files]


def load_probes(
    config: EngineConfig, hidden_size: int, dtype: torch.dtype, device: torch.device
) -> ProbeHeads:
    """Raises as `engine.execution.scoring.scorer_of`."""
    probes = read_probes(config.probes)
    own = model_hash(config.model)
    for path, probe in zip(config.probes, probes, strict=True):
        if probe.model_hash != own:
            models = f"({probe.model}), not on {config.model}"
            raise ValueError(f"probe {path} was trained on another model {models}")
    heads = ProbeHeads(probes, hidden_size, device)
    if device.type == "cpu" and config.cpu_kernels != "torch" and heads.is_linear:
        library = native_library.load(dtype)
        return heads if library is None else NativeProbeHeads(probes, hidden_size, library)
    return heads
