"""Weir's own decoder against transformers' code on the same weights, with kernels in torch and in C."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, LlamaConfig, PreTrainedConfig

from engine.device.trials import Times, TrialRecord
from engine.execution.model_runner import ModelRunner
from engine.models import linear_trial
from engine.models.decoder import DecoderConfig
from engine.models.linear_trial import ROWS
from engine.protocol.options import CpuKernels, EngineConfig, Quantization
from tests.engine.device.decoders import FAMILY, SIZES, logits_of, prompts_of, save
from tests.helpers import slow


@pytest.mark.parametrize("kernels", ["native", "torch"])
@pytest.mark.parametrize("name", FAMILY)
def test_logits_are_those_of_transformers(name: str, kernels: Any, tmp_path: Path) -> None:
    model = save(FAMILY[name], tmp_path)
    config = EngineConfig(
        model=str(tmp_path),
        model_impl="weir",
        cpu_kernels=kernels,
        num_threads=1,
        max_num_seqs=8,
        block_size=4,
    )
    runner = ModelRunner.load(config)
    prompts = prompts_of(1, 40, 7, 90, 33)
    # A whole prefill, then chunks, short spans and single tokens over what was kept.
    logits = logits_of(runner, prompts, [30, 31, 36, 60])
    for prompt, found in zip(prompts, logits, strict=True):
        with torch.inference_mode():
            expected = model(torch.tensor([prompt])).logits[0, -1]
        assert torch.allclose(found, expected, atol=2e-4), (found - expected).abs().max()


@pytest.mark.parametrize("name", ["llama", "qwen3 of 64"])
def test_in_bfloat16_kernels_in_c_are_as_exact_as_torch(name: str, tmp_path: Path) -> None:
    save(FAMILY[name], tmp_path)
    prompts = prompts_of(90, 20, 61)

    def run(dtype: Any, kernels: Any) -> torch.Tensor:
        config = EngineConfig(
            model=str(tmp_path),
            model_impl="weir",
            cpu_kernels=kernels,
            dtype=dtype,
            num_threads=1,
            max_num_seqs=8,
        )
        return torch.stack(logits_of(ModelRunner.load(config), prompts, [50, 51]))

    exact = run("float32", "torch")
    by_torch, by_c = ((run("bfloat16", kernels) - exact).abs().mean() for kernels in ("torch", "native"))
    assert by_c < 1.25 * by_torch < 0.1


def test_the_number_of_threads_does_not_change_logits(tmp_path: Path) -> None:
    save(FAMILY["qwen3 of 128, tied"], tmp_path)
    prompts = prompts_of(*range(300, 330))
    results = []
    for num_threads in (1, 4):
        config = EngineConfig(
            model=str(tmp_path), cpu_kernels="native", num_threads=num_threads, max_num_seqs=32
        )
        results.append(torch.stack(logits_of(ModelRunner.load(config), prompts, [299])))
    torch.set_num_threads(1)
    assert torch.allclose(results[0], results[1], atol=1e-4)


@pytest.mark.parametrize(
    "config",
    [
        GPT2Config(n_layer=1),
        LlamaConfig(hidden_act="gelu"),
        LlamaConfig(rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}),
    ],
)
def test_models_outside_the_family_are_not_taken(config: PreTrainedConfig) -> None:
    assert DecoderConfig.of(config, 8, torch.device("cpu")) is None


@pytest.mark.parametrize("cpu_kernels", ["native", "torch"])
@pytest.mark.parametrize(("quantization", "closeness"), [("int8", 0.995), ("int4", 0.95)])
def test_rounded_weights_keep_logits_close(
    quantization: Quantization, closeness: float, cpu_kernels: CpuKernels, tmp_path: Path
) -> None:
    save(FAMILY["qwen3 of 64"], tmp_path)
    prompts = prompts_of(30, 11, 50)
    exact, rounded = (
        torch.stack(
            logits_of(
                ModelRunner.load(EngineConfig(model=str(tmp_path), quantization=q, cpu_kernels=cpu_kernels)),
                prompts,
                [10],
            )
        )
        for q in (None, quantization)
    )
    assert torch.cosine_similarity(exact, rounded).min() > closeness


def test_rounded_weights_need_our_own_decoder(tmp_path: Path) -> None:
    save(FAMILY["qwen3 of 64"], tmp_path)
    with pytest.raises(ValueError, match="own decoder"):
        ModelRunner.load(EngineConfig(model=str(tmp_path), quantization="int8", model_impl="transformers"))


WIDE = LlamaConfig(**SIZES | {"hidden_size": 384, "intermediate_size": 1024, "head_dim": 64})
"""Its largest matrices are tried."""


@pytest.mark.parametrize(
    ("kernels", "dtype"),
    [("native", "float32"), ("native", "bfloat16"), slow("torch", "float32"), slow("torch", "bfloat16")],
)
@pytest.mark.parametrize("batch_invariant", [True, False])
def test_a_request_has_the_logits_of_its_solo_run(
    dtype: Any, kernels: Any, batch_invariant: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def times(makers: Any, *_: object) -> Times:
        """C is the fastest for few rows, and overall; oneDNN for many."""
        return {name: {n: 1.0 + 4 * (n <= 8 if name == "torch" else n > 8) for n in ROWS} for name in makers}

    monkeypatch.setattr(linear_trial, "measured", times)
    monkeypatch.setattr(TrialRecord, "open", lambda: TrialRecord(None))
    save(WIDE, tmp_path)
    runner = ModelRunner.load(
        EngineConfig(
            model=str(tmp_path),
            model_impl="weir",
            dtype=dtype,
            cpu_kernels=kernels,
            batch_invariant=batch_invariant,
            num_threads=1,
        )
    )
    prompts = prompts_of(*range(20, 60))
    together = torch.stack(logits_of(runner, prompts, [19, *range(20, 60)]))
    alone = torch.stack([logits_of(runner, [prompt], [19, *range(20, 60)])[0] for prompt in prompts])
    if batch_invariant and kernels == "native":
        assert torch.equal(together, alone)
    # oneDNN adds in another order for other numbers of rows. A sum may then round to the next bfloat16.
    tolerance = 1e-3 if dtype == "float32" else 0.05
    assert (together - alone).abs().max() < tolerance * alone.abs().max()
