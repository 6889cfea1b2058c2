"""A decoder on the kernels in Triton, against transformers' code; and which backend is chosen at start."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from engine.device.batch import Batch
from engine.device.kernels.gpu.triton_kernels import TritonAttention, TritonKernels
from engine.device.kernels.protocol import AttentionLayer, AttentionShape
from engine.device.kernels.torch_kernels import TorchKernels
from engine.device.kv_cache import KVCache, LayerShape
from engine.execution.model_runner import ModelRunner
from engine.protocol.options import EngineConfig
from tests.engine.device.attention_cases import DEVICE, SPANS, Case
from tests.engine.device.decoders import FAMILY, logits_of, prompts_of, save
from tests.engine.device.steps import decoding, graphs_of
from tests.helpers import slow

DEVICE_NAME: Any = DEVICE.type


@pytest.mark.parametrize(
    "name", ["llama", slow("mistral"), slow("qwen3 of 64"), slow("llama without groups")]
)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    model = save(FAMILY[name], tmp_path)
    config = EngineConfig(
        model=str(tmp_path),
        model_impl="weir",
        device=DEVICE_NAME,
        attention_backend="triton",
        num_threads=1,
        max_num_seqs=8,
        block_size=4,
    )
    runner = ModelRunner.load(config)
    prompts = prompts_of(1, 7, 33)
    for prompt, found in zip(prompts, logits_of(runner, prompts, [15, 16, 20]), strict=True):
        with torch.inference_mode():
            expected = model(torch.tensor([prompt])).logits[0, -1]
        assert torch.allclose(found.cpu(), expected, atol=2e-4), (found.cpu() - expected).abs().max()


@pytest.mark.parametrize("family", [slow("gemma2"), "gpt_oss", slow("deepseek_v3")])
def test_models_by_transformers_code_attend_by_triton_too(
    family: str, tiny_core: Callable[..., Any], tiny_model: Callable[[str], Any], completion_request: Any
) -> None:
    core = tiny_core(family, device=DEVICE_NAME, attention_backend="triton", max_num_batched_tokens=16)
    assert core.core.runner.model.attention is TritonAttention
    prompts = prompts_of(20, 3)
    groups = [core.add(completion_request(tuple(p), max_tokens=3, ignore_eos=True)) for p in prompts]
    core.run()
    for prompt, group in zip(prompts, groups, strict=True):
        assert core.answers(group)[0].ids == tiny_model(family).generate(prompt, 3)


@torch.inference_mode()
@pytest.mark.slow
def test_a_step_padded_to_a_bucket_gives_what_an_unpadded_one_gives(tiny_core: Callable[..., Any]) -> None:
    settings = {"device": DEVICE_NAME, "enforce_eager": True, "attention_backend": "triton"}
    runner = tiny_core("mistral", **settings).core.runner
    for pool in (*runner.kv_cache.keys.values(), *runner.kv_cache.values.values()):
        pool.normal_()
    graphs = graphs_of(runner, max_rows=4)
    for lengths in ([70, 1, 40, 12], [30], [5, 200, 33]):
        layout = decoding(runner, lengths)
        expected = runner.model.forward(Batch.of(layout, runner.device), runner.kv_cache)
        assert torch.allclose(graphs.run(layout), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("head_dim", "has_norms", "dtype"),
    [
        *((12, has_norms, dtype) for has_norms in (False, True) for dtype in (torch.float32, torch.bfloat16)),
        *((64, has_norms, torch.float32) for has_norms in (False, True)),
        *(slow(64, has_norms, torch.bfloat16) for has_norms in (False, True)),
    ],
)
def test_queries_keys_and_values_are_what_torch_makes_of_them(
    head_dim: int, has_norms: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(1)
    shape = AttentionShape(6, 2, head_dim, 1e-5, torch.randn(200, head_dim, device=DEVICE))
    norms = [torch.randn(head_dim, device=DEVICE).to(dtype) if has_norms else None for _ in range(2)]
    layer = AttentionLayer(0, 30, *norms)
    case = Case(LayerShape(2, head_dim, head_dim), heads=6, dtype=dtype, spans=[*SPANS[:2], (10, 30)])
    qkv = torch.randn(case.query.shape[0], 10 * head_dim, device=DEVICE).to(dtype)
    found = []
    for kernels in (TorchKernels(shape), TritonKernels(shape)):
        cache = KVCache(
            {0: LayerShape(2, head_dim, head_dim)},
            num_blocks=case.kv_cache.num_blocks,
            block_size=16,
            dtype=dtype,
            device=DEVICE,
        )
        out = kernels.step(case.batch, cache).attend(layer, qkv.clone())
        found.append((out, cache.keys[0], cache.values[0]))
    tolerance = 1e-5 if dtype == torch.float32 else 5e-2
    for by_torch, by_triton in zip(*found, strict=True):
        assert torch.allclose(by_torch, by_triton, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_gate_is_what_torch_makes_of_it(dtype: torch.dtype) -> None:
    shape = AttentionShape(1, 1, 16, 1e-5, torch.zeros(1))
    gate_up = torch.randn(3, 2 * 1500, device=DEVICE).to(dtype)
    case = Case(spans=[(0, 1)])
    by_torch, by_triton = (
        kernels.step(case.batch, case.kv_cache).silu_and_mul(gate_up).float()
        for kernels in (
            TorchKernels(AttentionShape(1, 1, 16, 1e-5, torch.zeros(1, 16, device=DEVICE))),
            TritonKernels(shape),
        )
    )
    assert torch.allclose(by_torch, by_triton, rtol=1e-5 if dtype == torch.float32 else 2e-2, atol=1e-6)
