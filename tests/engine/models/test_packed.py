"""AWQ and GPTQ checkpoints. The packers here follow the formats' definitions, number by number."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, LlamaConfig

from engine.execution.model_runner import ModelRunner
from engine.models.checkpoint import SafetensorsCheckpoint
from engine.models.decoder import Decoder, DecoderConfig
from engine.models.load import load_model
from engine.models.packed import packed_weights
from engine.models.transformers_model import TransformersModel
from engine.protocol.options import EngineConfig
from tests.engine.device.decoders import SIZES, logits_of, prompts_of, save
from tests.helpers import examples

Numbers = NDArray[np.int64]

SIZE = 32
"""Inputs of a group."""
CONFIG = LlamaConfig(**SIZES | {"hidden_size": 64, "head_dim": 16})
AWQ = {"quant_method": "awq", "bits": 4, "group_size": SIZE, "version": "gemm", "zero_point": True}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": SIZE, "desc_act": False, "sym": False}
MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def as_int32(value: int) -> int:
    return value - 2**32 if value >= 2**31 else value


def pack_awq(numbers: Numbers) -> Tensor:
    """`[rows, columns]` to `[rows, columns / 8]`: nibble i of an int32 is column 0, 2, 4, 6, 1, 3, 5, 7."""
    rows, columns = numbers.shape
    packed = torch.zeros(rows, columns // 8, dtype=torch.int32)
    for row in range(rows):
        for word in range(columns // 8):
            value = 0
            for nibble, column in enumerate([0, 2, 4, 6, 1, 3, 5, 7]):
                value |= int(numbers[row, 8 * word + column]) << 4 * nibble
            packed[row, word] = as_int32(value)
    return packed


def pack_columns(numbers: Numbers) -> Tensor:
    """`[rows, columns]` to `[rows, columns / 8]`: nibble i of an int32 is column i."""
    rows, columns = numbers.shape
    packed = torch.zeros(rows, columns // 8, dtype=torch.int32)
    for row in range(rows):
        for word in range(columns // 8):
            value = sum(int(numbers[row, 8 * word + i]) << 4 * i for i in range(8))
            packed[row, word] = as_int32(value)
    return packed


class Packed:
    """One module's random numbers, scales and zero points, and the weights that they stand for."""

    def __init__(self, rng: np.random.Generator, outs: int, ins: int, groups: Numbers, sym: bool = False):
        num_groups = int(groups.max()) + 1
        self.groups = groups
        self.numbers = rng.integers(0, 16, (ins, outs))
        self.zeros = rng.integers(1, 17, (num_groups, outs)) if not sym else np.full((num_groups, outs), 8)
        self.zeros = np.minimum(self.zeros, 15)
        self.scales = torch.from_numpy(rng.uniform(0.005, 0.05, (num_groups, outs))).half()

    @property
    def weight(self) -> Tensor:
        """`[out, in]`, float32."""
        scales = self.scales.float().numpy()
        steps = self.numbers - self.zeros[self.groups]
        return torch.from_numpy((steps * scales[self.groups]).T.astype(np.float32)).contiguous()

    def awq(self) -> dict[str, Tensor]:
        return {"qweight": pack_awq(self.numbers), "qzeros": pack_awq(self.zeros), "scales": self.scales}

    def gptq(self, subtracted: int = 1) -> dict[str, Tensor]:
        return {
            "qweight": pack_columns(self.numbers.T).T.contiguous(),
            "qzeros": pack_columns(self.zeros - subtracted),
            "scales": self.scales,
            "g_idx": torch.from_numpy(self.groups).int(),
        }


def shuffled(ins: int, seed: int) -> Numbers:
    return np.random.default_rng(seed).permutation(np.arange(ins) // SIZE)


def save_packed(
    folder: Path, packing: dict[str, Any], *, act_order: bool = False, sym: bool = False, subtracted: int = 1
) -> Path:
    """Save a model with packed weights in `folder / "packed"`, and with the same weights, plain, in
    `folder / "plain"`."""
    rng = np.random.default_rng(0)
    save(CONFIG, folder / "plain")
    save(CONFIG, folder / "packed")
    plain = load_file(folder / "plain/model.safetensors")
    packed = dict(plain)
    for name, weight in plain.items():
        parts = name.split(".")
        if parts[-2] not in MODULES:
            continue
        outs, ins = weight.shape
        groups = shuffled(ins, seed=int(parts[2])) if act_order else np.arange(ins) // SIZE
        module = Packed(rng, outs, ins, groups, sym)
        plain[name] = module.weight
        stored = module.awq() if packing["quant_method"] == "awq" else module.gptq(subtracted)
        del packed[name]
        packed |= {f"{name.removesuffix('weight')}{key}": value for key, value in stored.items()}
    save_file(plain, folder / "plain/model.safetensors", metadata={"format": "pt"})
    save_file(packed, folder / "packed/model.safetensors", metadata={"format": "pt"})
    configure(folder / "packed", packing)
    return folder / "packed"


def configure(folder: Path, packing: dict[str, Any]) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": packing}))


def runner(folder: Path, **settings: Any) -> ModelRunner:
    return ModelRunner.load(EngineConfig(**{"model": str(folder), "dtype": "float32", **settings}))


def assert_same_logits(folder: Path, **settings: Any) -> None:
    prompts = prompts_of(20, 7, 33)
    found, exact = (
        torch.stack(logits_of(runner(folder / name, **settings), prompts, [10]))
        for name in ("packed", "plain")
    )
    assert (found - exact).abs().max() < 1e-4 * exact.abs().max()


@pytest.mark.parametrize("cpu_kernels", ["native", "torch"])
@pytest.mark.parametrize(
    ("packing", "how"),
    [
        (AWQ, {}),
        (GPTQ, {}),
        (GPTQ | {"desc_act": True}, {"act_order": True}),
        (GPTQ | {"sym": True}, {"sym": True}),
        (GPTQ | {"checkpoint_format": "gptq"}, {}),
        (GPTQ | {"checkpoint_format": "gptq_v2"}, {"subtracted": 0}),
        (GPTQ | {"sym": True, "checkpoint_format": "gptq"}, {"sym": True, "subtracted": 0}),
    ],
)
def test_logits_are_those_of_the_weights_that_are_packed(
    packing: dict[str, Any], how: dict[str, Any], cpu_kernels: str, tmp_path: Path
) -> None:
    save_packed(tmp_path, packing, **how)
    assert_same_logits(tmp_path, cpu_kernels=cpu_kernels)


def test_groups_may_have_all_inputs(tmp_path: Path) -> None:
    module = Packed(np.random.default_rng(1), 16, 40, np.zeros(40, np.int64))
    found = read(module.gptq(), GPTQ | {"group_size": -1}, tmp_path)
    assert torch.equal(found, module.weight)


def read(stored: dict[str, Tensor], packing: dict[str, Any], folder: Path) -> Tensor:
    save_file({f"m.{name}": value for name, value in stored.items()}, folder / "model.safetensors")
    with SafetensorsCheckpoint.of(folder, torch.float32, torch.device("cpu")) as checkpoint:
        weight = packed_weights(packing).take(checkpoint, "m")
    assert not isinstance(weight, Tensor)
    return weight.dequantized()


@examples(160)
@given(
    seed=st.integers(0, 10_000),
    outs=st.integers(1, 3).map(lambda n: 8 * n),
    ins=st.integers(1, 12).map(lambda n: 8 * n),
    act_order=st.booleans(),
)
def test_any_packed_matrix_is_read_exactly(
    tmp_path_factory: pytest.TempPathFactory, seed: int, outs: int, ins: int, act_order: bool
) -> None:
    folder = tmp_path_factory.mktemp("packed")
    groups = shuffled(ins, seed) if act_order else np.arange(ins) // SIZE
    module = Packed(np.random.default_rng(seed), outs, ins, groups)
    assert torch.equal(read(module.gptq(), GPTQ, folder), module.weight)
    if not act_order:
        assert torch.equal(read(module.awq(), AWQ, folder), module.weight)


@pytest.mark.parametrize(
    ("packing", "named"),
    [
        (AWQ | {"bits": 3}, "quantization_config.bits is 3"),
        (AWQ | {"version": "gemv"}, "quantization_config.version is 'gemv'"),
        (AWQ | {"group_size": 0}, "quantization_config.group_size is 0"),
        (AWQ | {"group_size": 16}, "group_size, 16"),
        (GPTQ | {"bits": 8}, "quantization_config.bits is 8"),
        (GPTQ | {"checkpoint_format": "marlin"}, "quantization_config.checkpoint_format is 'marlin'"),
        (GPTQ | {"is_marlin_format": True}, "quantization_config.is_marlin_format is True"),
        (GPTQ | {"pack_dtype": "int8"}, "quantization_config.pack_dtype is 'int8'"),
        (GPTQ | {"dynamic": {"-:lm_head": {}}}, "quantization_config.dynamic is"),
    ],
)
def test_a_form_that_cannot_be_read_is_named(packing: dict[str, Any], named: str, tmp_path: Path) -> None:
    folder = save_packed(tmp_path, packing)
    with pytest.raises(ValueError, match=r"own decoder cannot run") as error:
        runner(folder)
    assert named in str(error.value)


def test_groups_that_are_not_whole_are_named(tmp_path: Path) -> None:
    folder = save_packed(tmp_path, GPTQ)
    tensors = load_file(folder / "model.safetensors")
    for module in "qkv":
        tensors[f"model.layers.0.self_attn.{module}_proj.g_idx"][:3] = 1
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"g_idx of model\.layers\.0\.self_attn\.q_proj"):
        runner(folder)


def test_parts_whose_inputs_are_in_different_orders_are_named(tmp_path: Path) -> None:
    folder = save_packed(tmp_path, GPTQ, act_order=True)
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.1.self_attn.v_proj.g_idx"
    tensors[name] = tensors[name].flip(0)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"v_proj differ"):
        runner(folder)


def test_packed_weights_are_not_rounded_again(tmp_path: Path) -> None:
    folder = save_packed(tmp_path, AWQ)
    with pytest.raises(ValueError, match="rounded already"):
        runner(folder, quantization="int8")


def test_an_unknown_method_is_left_to_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Asked(Exception):
        pass

    def asked(*_: object) -> None:
        raise Asked

    save(CONFIG, tmp_path)
    configure(tmp_path, {"quant_method": "bitsandbytes"})
    monkeypatch.setattr(TransformersModel, "load", asked)
    with pytest.raises(Asked):
        runner(tmp_path)
    with pytest.raises(ValueError, match="quant_method is 'bitsandbytes'"):
        runner(tmp_path, model_impl="weir")


@pytest.mark.parametrize(
    ("packing", "quantization"), [(AWQ, None), (GPTQ, None), (None, "int8"), (None, "int4")]
)
def test_on_cuda_weights_of_few_bits_are_refused_at_start(
    packing: dict[str, Any] | None, quantization: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No GPU is needed: until then, only the angles of positions would be made there."""
    folder = tmp_path
    if packing is None:
        save(CONFIG, folder)
    else:
        folder = save_packed(tmp_path, packing)
    of = DecoderConfig.of
    monkeypatch.setattr(DecoderConfig, "of", lambda config, size, _: of(config, size, torch.device("cpu")))
    monkeypatch.setattr(TransformersModel, "load", lambda *_: pytest.fail("other code is tried"))
    config = EngineConfig(model=str(folder), quantization=quantization)
    with pytest.raises(ValueError, match=r"run on a CPU only; on CUDA, .* --engine vllm\.$"):
        load_model(config, AutoConfig.from_pretrained(folder), 64, torch.device("cuda"))


def test_a_cpu_computes_a_packed_float16_checkpoint_in_bfloat16(tmp_path: Path) -> None:
    folder = save_packed(tmp_path, AWQ)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"dtype": "float16"}))
    loaded = runner(folder, dtype="auto", device="cpu")
    assert isinstance(loaded.model, Decoder)
    assert loaded.model.dtype == torch.bfloat16
    assert logits_of(loaded, prompts_of(5), [])
