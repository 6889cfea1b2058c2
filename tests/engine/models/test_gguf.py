"""Models of GGUF files, beside the models that the files were written from and transformers' own reading."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
from transformers import AutoModelForCausalLM, GgufConfig

from engine.execution.model_runner import ModelRunner
from engine.models.decoder import Decoder
from engine.models.gguf_blocks import KEPT, kept
from engine.models.transformers_model import TransformersModel
from engine.protocol.options import EngineConfig
from tests.engine.device.decoders import logits_of
from tests.engine.gguf_files import CONFIGS, NUM_LAYERS, VOCAB_SIZE, Kind, write_gguf

OWN = {"llama", "qwen2", "qwen3"}
"""Architectures that Weir's own decoder runs."""
MEAN_ERROR = 1e-4
PROMPT = torch.randint(3, VOCAB_SIZE, (45,), generator=torch.manual_seed(0)).tolist()
"""Longer than the sliding windows."""
LENGTHS = (1, 2, 20, 45)


def load(path: Path, **options: Any) -> ModelRunner:
    return ModelRunner.load(
        EngineConfig(
            **{"model": str(path), "dtype": "float32", "kv_cache_memory": 2**24, "num_threads": 1} | options
        )
    )


def logprobs_of(runner: ModelRunner) -> torch.Tensor:
    """After the first tokens of `PROMPT`, as many as each of `LENGTHS`."""
    return torch.stack(logits_of(runner, [PROMPT[:n] for n in LENGTHS], [])).log_softmax(-1)


@torch.inference_mode()
def expected_of(model: Any) -> torch.Tensor:
    logits = model(torch.tensor([PROMPT])).logits[0].float()
    return logits[[n - 1 for n in LENGTHS]].log_softmax(-1)


def assert_alike(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert float((found - expected).abs().mean()) <= MEAN_ERROR
    assert torch.equal(found.argmax(-1), expected.argmax(-1))


@pytest.mark.parametrize("name", CONFIGS)
def test_each_family_computes_what_its_model_does(name: str, tmp_path: Path) -> None:
    model = write_gguf(tmp_path / "m.gguf", name)
    runner = load(tmp_path / "m.gguf")
    assert isinstance(runner.model, Decoder if CONFIGS[name][0] in OWN else TransformersModel)
    assert_alike(logprobs_of(runner), expected_of(model))


@pytest.mark.parametrize("name", ["llama, tied", "qwen2", "gemma2", "gemma3", "phi3"])
def test_transformers_reads_the_same_from_the_file(name: str, tmp_path: Path) -> None:
    # It takes a vocabulary for as large as the list of tokens, unless the file says more.
    known = {f"{CONFIGS[name][0]}.vocab_size": VOCAB_SIZE, "tokenizer.ggml.padding_token_id": 0}
    without_window = {"phi3.attention.sliding_window": None}  # transformers does not read Phi's
    write_gguf(tmp_path / "m.gguf", name, Kind.Q8_0, metadata=known | without_window)
    theirs = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="m.gguf", dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    if name.startswith("gemma"):  # it takes a scale from its own defaults, which is that of larger heads
        for layer in theirs.model.layers:
            layer.self_attn.scaling = 32**-0.5
    assert_alike(logprobs_of(load(tmp_path / "m.gguf")), expected_of(theirs))


@pytest.mark.parametrize("cpu_kernels", ["native", "torch"])
@pytest.mark.parametrize("kind", [Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1])
def test_each_type_of_weights_is_read_exactly(kind: Kind, cpu_kernels: str, tmp_path: Path) -> None:
    model = write_gguf(tmp_path / "m.gguf", "llama", kind)
    assert_alike(logprobs_of(load(tmp_path / "m.gguf", cpu_kernels=cpu_kernels)), expected_of(model))


@pytest.mark.parametrize("name", ["llama, tied", "llama"])
def test_types_may_differ_from_tensor_to_tensor(name: str, tmp_path: Path) -> None:
    kinds = {"token_embd": Kind.Q8_0, "attn_v": Kind.Q5_0, "ffn_up": Kind.F16, "output": Kind.Q4_0}
    model = write_gguf(tmp_path / "m.gguf", name, Kind.Q4_1, kinds=kinds)
    assert_alike(logprobs_of(load(tmp_path / "m.gguf")), expected_of(model))


def test_transformers_code_gets_the_same_weights(tmp_path: Path) -> None:
    model = write_gguf(tmp_path / "m.gguf", "llama, tied", Kind.Q4_0)
    runner = load(tmp_path / "m.gguf", model_impl="transformers")
    assert isinstance(runner.model, TransformersModel)
    assert_alike(logprobs_of(runner), expected_of(model))


@pytest.mark.parametrize("kind", KEPT)
def test_blocks_keep_the_numbers_that_ggml_reads(kind: int) -> None:
    rng = np.random.default_rng(kind)
    elements, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    rows = rng.integers(0, 256, (7, 3 * size), np.uint8)
    blocks = rows.reshape(-1, size)
    num_halves = 1 if kind in (Kind.Q8_0, Kind.Q4_0, Kind.Q5_0) else 2
    blocks[:, : 2 * num_halves] = (
        rng.normal(0, 1, (len(blocks), num_halves)).astype(np.float16).view(np.uint8)
    )
    expected = quants.dequantize(rows, GGMLQuantizationType(kind))
    assert expected.shape == (7, 3 * elements)
    found = kept(rows, kind)
    assert found.shifts is None or num_halves == 2
    # Scales of the K types are products of two numbers, which float16 rounds.
    unit = 2**-11 if kind in (Kind.Q4_K, Kind.Q5_K) else 2**-24
    sizes = 32 * found.scales.float().abs() + (0 if found.shifts is None else found.shifts.float().abs())
    bound = unit * sizes.repeat_interleave(32, 1).numpy() + 1e-6
    assert (np.abs(found.dequantized().numpy() - expected) <= bound).all()


def test_the_log_says_which_weights_stay_and_what_others_take(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_gguf(tmp_path / "m.gguf", "llama", Kind.Q4_1, kinds={"attn_v": Kind.Q5_0, "output": Kind.Q8_0})
    with caplog.at_level(logging.INFO, logger="weir.engine"):
        load(tmp_path / "m.gguf")
    (kept_line,) = [r.getMessage() for r in caplog.records if "stay as they are" in r.getMessage()]
    assert "in Q4_1" in kept_line
    assert "in Q8_0" in kept_line
    (unpacked,) = [r.getMessage() for r in caplog.records if "unpacked" in r.getMessage()]
    assert "are unpacked to float32 and take 0.4 MB" in unpacked  # queries, keys and values of 6 layers


def test_rounding_leaves_whole_numbers_as_they_are(tmp_path: Path) -> None:
    model = write_gguf(tmp_path / "m.gguf", "llama", Kind.Q4_0)
    assert_alike(logprobs_of(load(tmp_path / "m.gguf", quantization="int8")), expected_of(model))


def test_tensors_that_the_architecture_does_not_know_are_refused(tmp_path: Path) -> None:
    """Transformers would leave them out, and answer all the same."""
    sizes = {
        "context_length": 256,
        "embedding_length": 64,
        "block_count": NUM_LAYERS,
        "feed_forward_length": 96,
    }
    heads = {"head_count": 4, "head_count_kv": 2, "key_length": 32, "layer_norm_rms_epsilon": 1e-6}
    fields = sizes | {f"attention.{name}": value for name, value in heads.items()}
    metadata = {"general.architecture": "llama"} | {f"llama.{name}": value for name, value in fields.items()}
    write_gguf(tmp_path / "m.gguf", "qwen3", metadata=metadata | {"llama.attention.value_length": 32})
    with pytest.raises(ValueError, match=r"tensors are not those of the architecture .*attn_k_norm"):
        load(tmp_path / "m.gguf")
