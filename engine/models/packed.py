"""Checkpoints whose weights have 4 bits: AWQ's and GPTQ's, read without rounding anything again.

Both store each module's numbers, eight in an int32 (`qweight`), and for each output and group of inputs a
scale (`scales`, `[groups, out]`) and a zero point (`qzeros`, `[groups, out / 8]`). A weight is
`(number - zero point) * scale`. They differ in what lies side by side in an int32.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from engine.device.kernels.quantized import QuantizedWeight, Weight
from engine.models.checkpoint import Checkpoint

AWQ_PLACES = [0, 4, 1, 5, 2, 6, 3, 7]
"""The place, from the lowest bits on, of each of eight outputs in an int32 of AWQ."""
ZERO = 8
"""The zero point of a number in `QuantizedWeight`, whose numbers begin at -8."""


class UnsupportedPackingError(ValueError):
    """The weights have 8 or 4 bits, in a form that cannot be read, or on a device that cannot multiply them.
    No other code is tried."""


class PackedWeights(ABC):
    """Implements `WeightFormat`. Modules without a `qweight` are as in any other checkpoint."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """`config`: the checkpoint's `quantization_config`. Raises `UnsupportedPackingError`."""
        self._config = config
        _require(config, ("bits", "w_bit"), [4])
        self._group_size = _first(config, ("group_size", "q_group_size"), 128)
        is_whole = isinstance(self._group_size, int) and (self._group_size > 0 or self._group_size == -1)
        if not is_whole:
            raise _unsupported("group_size", self._group_size)

    def take(self, checkpoint: Checkpoint, *names: str) -> Weight:
        are_packed = [f"{name}.qweight" in checkpoint for name in names]
        if not any(are_packed):
            return checkpoint.take_matrix(*names)
        if not all(are_packed):
            raise UnsupportedPackingError(f"only some of {', '.join(names)} have a qweight")
        return joined([self._read(checkpoint, name) for name in names], names)

    def take_head(self, checkpoint: Checkpoint, tied: Weight | None) -> Weight:
        return self.take(checkpoint, "lm_head") if tied is None else tied

    def _read(self, checkpoint: Checkpoint, name: str) -> QuantizedWeight:
        numbers = self._numbers(checkpoint.take_as_stored(f"{name}.qweight"))
        zeros = self._zeros(checkpoint.take_as_stored(f"{name}.qzeros")).T
        scales = checkpoint.take_as_stored(f"{name}.scales").half().T.contiguous()
        outs, ins = numbers.shape
        size = ins if self._group_size == -1 else self._group_size
        if not zeros.shape == scales.shape == (outs, -(-ins // size)):
            raise UnsupportedPackingError(f"the scales of {name} do not fit its group_size, {size}")
        order = self._order(checkpoint, name, ins, size)
        return QuantizedWeight(
            bits=4,
            numbers=(numbers if order is None else numbers[:, order]) - ZERO,
            scales=scales,
            offsets=(ZERO - zeros).contiguous(),
            group_size=size,
            order=order,
        )

    @abstractmethod
    def _numbers(self, packed: Tensor) -> Tensor:
        """`[out, in]`, int8, from 0 to 15."""

    @abstractmethod
    def _zeros(self, packed: Tensor) -> Tensor:
        """`[groups, out]`, int8."""

    def _order(self, checkpoint: Checkpoint, name: str, ins: int, size: int) -> Tensor | None:
        """The inputs, group by group. None: they are in order."""
        return None


class AwqWeights(PackedWeights):
    """`qweight` is `[in, out / 8]`. An int32 has the numbers of eight outputs, the even ones first."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        _require(config, ("version", "format", "checkpoint_format"), ["gemm"])

    def _numbers(self, packed: Tensor) -> Tensor:
        return self._zeros(packed).T

    def _zeros(self, packed: Tensor) -> Tensor:
        return numbers_in(packed)[:, :, AWQ_PLACES].flatten(1)


class GptqWeights(PackedWeights):
    """`qweight` is `[in / 8, out]`. An int32 has the numbers of eight inputs. A zero point is stored less 1,
    except in the format `gptq_v2`. `g_idx` `[in]` says the group of each input."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        _require(config, ("checkpoint_format", "format"), ["gptq", "gptq_v2"])
        _require(config, ("is_marlin_format",), [False])
        _require(config, ("pack_dtype",), ["int32"])
        if config.get("dynamic"):
            raise _unsupported("dynamic", config["dynamic"])
        self._adds_1 = _first(config, ("checkpoint_format", "format"), "gptq") == "gptq"

    def _numbers(self, packed: Tensor) -> Tensor:
        return numbers_in(packed.T).flatten(1)

    def _zeros(self, packed: Tensor) -> Tensor:
        stored = numbers_in(packed).flatten(1)
        # Symmetric weights have the zero point 8. Some writers of the format `gptq` do not subtract the 1.
        is_subtracted = self._adds_1 and not (self._config.get("sym") and bool((stored == ZERO).all()))
        return stored + 1 & 15 if is_subtracted else stored

    def _order(self, checkpoint: Checkpoint, name: str, ins: int, size: int) -> Tensor | None:
        if f"{name}.g_idx" not in checkpoint:
            return None
        groups = checkpoint.take_as_stored(f"{name}.g_idx").long()
        in_order = torch.arange(ins, device=groups.device) // size
        if torch.equal(groups, in_order):
            return None
        order = groups.argsort(stable=True)
        if not torch.equal(groups[order], in_order):
            raise UnsupportedPackingError(f"the g_idx of {name} has groups that are not of {size} inputs")
        return order


def packed_weights(config: Mapping[str, Any]) -> PackedWeights:
    """`config`: a checkpoint's `quantization_config`. Raises `ValueError`."""
    formats = {"awq": AwqWeights, "gptq": GptqWeights}
    method = config.get("quant_method")
    if method not in formats:
        raise ValueError(
            f"its quantization_config.quant_method is {method!r}, and not {' or '.join(formats)}"
        )
    return formats[method](config)


def numbers_in(packed: Tensor) -> Tensor:
    """The eight numbers in each int32, from the lowest bits on: `[a, b]` to `[a, b, 8]`, int8."""
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=packed.device)
    return (packed.unsqueeze(-1) >> shifts & 15).to(torch.int8)


def joined(weights: list[QuantizedWeight], names: tuple[str, ...]) -> QuantizedWeight:
    """One matrix of all outputs. Its parts have the same inputs, in the same order."""
    first = weights[0]
    for other in weights[1:]:
        orders = [o for o in (first.order, other.order) if o is not None]
        if len(orders) == 1 or (orders and not torch.equal(*orders)):
            raise UnsupportedPackingError(f"the g_idx of {' and '.join(names)} differ")
    return QuantizedWeight.cat(weights)


def _first(config: Mapping[str, Any], names: tuple[str, ...], default: Any) -> Any:
    return next((config[name] for name in names if config.get(name) is not None), default)


def _require(config: Mapping[str, Any], names: tuple[str, ...], supported: list[Any]) -> None:
    """Each of `names` that the configuration has must have one of the `supported` values."""
    for name in names:
        value = config.get(name, supported[0])
        if (value.lower() if isinstance(value, str) else value) not in supported:
            raise _unsupported(name, value, supported)


def _unsupported(name: str, value: Any, supported: list[Any] | None = None) -> UnsupportedPackingError:
    wanted = f", and not {' or '.join(map(str, supported))}" if supported else ""
    return UnsupportedPackingError(f"its quantization_config.{name} is {value!r}{wanted}")
