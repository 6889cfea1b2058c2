"""All probes of a model as one classifier, which scores each token while the model runs.

Every kind of probe begins with a linear map of its inputs, standardized. So the first maps of all probes are
columns of one matrix for each layer, and one product a layer serves all probes:

    columns = bias + sum over layers of (output of the layer) @ (the layer's matrix)

The columns of linear and attention-pooled probes are their scores.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.device.batch import Batch
from engine.device.kernels.cpu.native_library import Library
from engine.device.kv_cache import KVCache
from engine.execution.probes.probe_file import Probe
from engine.protocol.probe_info import ProbeInfo


class ProbeHeads:
    """Implements `Capture`: writes each token's scores beside its keys and values (`KVCache.scores`)."""

    def __init__(self, probes: Sequence[Probe], hidden_size: int, device: torch.device) -> None:
        """Raises `ValueError` for a probe of another width, and for two of one name."""
        names = [probe.info.name for probe in probes]
        for probe in probes:
            if names.count(probe.info.name) > 1:
                raise ValueError(f"two probes have the name {probe.info.name}")
            if probe.num_inputs != len(probe.layers) * hidden_size:
                wanted = f"{len(probe.layers)} layers of {hidden_size} numbers"
                raise ValueError(f"probe {probe.info.name} has {probe.num_inputs} inputs, and not {wanted}")
        self.infos: tuple[ProbeInfo, ...] = tuple(probe.info for probe in probes)
        self.layers = frozenset(layer for probe in probes for layer in probe.layers)
        self.num_scores = sum(len(info.score_names) for info in self.infos)
        self._heads = [_Head(probe, device) for probe in probes]
        first = [_first_map(probe) for probe in probes]
        self._bias = torch.cat([bias for _, bias in first]).to(device)
        maps = [(probe.layers, *both) for probe, both in zip(probes, first, strict=True)]
        self._matrices = {layer: _matrix(layer, maps, hidden_size).to(device) for layer in self.layers}
        self.is_linear = all(head.is_identity for head in self._heads)
        """Whether the columns are the scores."""

    def begin(self, batch: Batch, kv_cache: KVCache) -> None:
        self._batch, self._kv_cache = batch, kv_cache
        self._outputs: dict[str, Tensor] = {}

    def take(self, layer: str, x: Tensor) -> None:
        self._outputs[layer] = x
        if len(self._outputs) < len(self._matrices):
            return
        # All products one after another: a product's code is in the processor's cache for the next one.
        columns = self._bias
        for name, matrix in self._matrices.items():
            columns = torch.addmm(columns, self._outputs[name].float(), matrix)
        assert self._kv_cache.scores is not None
        self._kv_cache.scores.index_copy_(0, self._batch.slots, self._scores(columns))
        self._outputs = {}

    def _scores(self, columns: Tensor) -> Tensor:
        """`[tokens, columns]` to `[tokens, scores]`."""
        if self.is_linear:
            return columns
        parts = torch.split(columns, [head.num_columns for head in self._heads], dim=1)
        return torch.cat([head(part) for head, part in zip(self._heads, parts, strict=True)], dim=1)


class NativeProbeHeads(ProbeHeads):
    """Scores tokens in C, without torch's operators: in a short step, each of them costs more than the
    arithmetic. All probes are linear or attention-pooled."""

    def __init__(self, probes: Sequence[Probe], hidden_size: int, library: Library) -> None:
        super().__init__(probes, hidden_size, torch.device("cpu"))
        assert self.is_linear
        self._library = library
        self._weights = {layer: matrix.T.contiguous() for layer, matrix in self._matrices.items()}
        self._addresses = {layer: weight.data_ptr() for layer, weight in self._weights.items()}
        self._hidden_size = hidden_size

    def begin(self, batch: Batch, kv_cache: KVCache) -> None:
        assert kv_cache.scores is not None
        self._scores_address, self._slots_address = kv_cache.scores.data_ptr(), batch.slots.data_ptr()
        self._num_rows = batch.slots.numel()
        self._bias_address: int | None = self._bias.data_ptr()

    def take(self, layer: str, x: Tensor) -> None:
        if x.dtype != self._library.dtype or not x.is_contiguous():
            x = x.to(self._library.dtype).contiguous()
        rows, dim, columns = self._num_rows, self._hidden_size, self.num_scores
        if x.shape != (rows, dim):
            raise ValueError(f"{layer} gives {tuple(x.shape)} for {rows} tokens of {dim}.")
        self._library.functions_for(rows * dim * columns).score(
            self._scores_address,
            self._slots_address,
            x.data_ptr(),
            self._addresses[layer],
            self._bias_address,
            rows,
            dim,
            columns,
        )
        self._bias_address = None  # the first layer's products begin the sums


def _matrix(layer: str, maps: Sequence[tuple[tuple[str, ...], Tensor, Tensor]], hidden_size: int) -> Tensor:
    """`[hidden, columns]`. The columns of probes that do not read the layer are zeros. `maps`: the layers and
    the first map of each probe."""
    parts = []
    for layers, weight, bias in maps:
        part = torch.zeros(len(bias), hidden_size)
        if layer in layers:
            begin = layers.index(layer) * hidden_size
            part = weight[:, begin : begin + hidden_size]
        parts.append(part)
    return torch.cat(parts).T.contiguous()


class _Head:
    """Turns one probe's columns into its scores."""

    def __init__(self, probe: Probe, device: torch.device) -> None:
        self.is_identity = probe.info.kind != "mlp"
        self.num_columns = len(_first_map(probe)[1])
        self._weight = probe.tensors["weight"].T.contiguous().to(device)
        self._bias = probe.tensors["bias"].to(device)

    def __call__(self, columns: Tensor) -> Tensor:
        return columns if self.is_identity else torch.addmm(self._bias, columns.relu(), self._weight)


def _first_map(probe: Probe) -> tuple[Tensor, Tensor]:
    """The first linear map, of the inputs as they are: `[columns, inputs]` and `[columns]`, float32."""
    tensors = probe.tensors
    weight, bias = tensors["weight"], tensors["bias"]
    if probe.info.kind == "mlp":
        weight, bias = tensors["hidden.weight"], tensors["hidden.bias"]
    elif probe.info.kind == "attention":
        weight = torch.cat([tensors["query.weight"], weight])
        bias = torch.cat([tensors["query.bias"], bias])
    scaled = weight.double() / tensors["scale"].double()
    return scaled.float(), (bias.double() - scaled @ tensors["mean"].double()).float()
