"""Engines of vLLM that need a start of their own: several workers, and adapters."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from engine.protocol import GenerationRequest
from engine.protocol.options import EngineConfig
from engine.vllm.options import engine_arguments
from tests.engine.conftest import TinyEngine
from tests.engine.core.test_rewind import PROMPT
from tests.engine.vllm.conftest import ARGUMENTS, SIZES

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("default"),
]


@asynccontextmanager
async def running(model: Path, loras: dict[str, str] | None = None, **arguments: Any) -> AsyncIterator[Any]:
    from engine.vllm.engine import VLLMEngine
    from engine.vllm.options import VLLMOptions

    options = VLLMOptions(vllm={**ARGUMENTS, **arguments}, vllm_lora_modules=loras or {})
    engine: Any = VLLMEngine(EngineConfig(model=str(model), max_num_seqs=4), options)
    for name in ("collect", "complete"):
        setattr(engine, name, MethodType(getattr(TinyEngine, name), engine))
    try:
        await engine.start()
        yield engine
    finally:
        await engine.aclose()


async def test_vllm_gets_the_reasoning_parser(vllm_model: Path) -> None:
    """A grammar begins where reasoning ends."""
    from engine.vllm.launch import Launch

    config = EngineConfig(model=str(vllm_model), reasoning_parser="qwen3")
    made = Launch.prepare(config, engine_arguments(config, ARGUMENTS)).vllm_config.structured_outputs_config
    assert (made.backend, made.reasoning_parser) == ("guidance", "qwen3")


@pytest.mark.parametrize("option", ["tensor_parallel_size", "data_parallel_size"])
async def test_two_workers_give_the_greedy_tokens_of_one(
    vllm_model: Path, local_engine: Any, option: str
) -> None:
    prompts, fields = (PROMPT, "hello world", "hello"), {"max_tokens": 20, "ignore_eos": True}
    others = await local_engine.complete(*prompts, **fields)
    workers: dict[str, Any] = {option: 2}
    async with running(vllm_model, **workers) as engine:
        answers = await engine.complete(*prompts, **fields)
    assert [answer.ids for answer in answers] == [other.ids for other in others]


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """A LoRA adapter that changes the model's answers."""
    config = {"peft_type": "LORA", "r": 8, "lora_alpha": 64, "target_modules": ["q_proj", "v_proj"]}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    torch.manual_seed(2)
    weights = {}
    for layer in range(SIZES["num_hidden_layers"]):
        for module in ("q_proj", "v_proj"):
            name = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            weights[f"{name}.lora_A.weight"] = torch.randn(8, SIZES["hidden_size"])
            weights[f"{name}.lora_B.weight"] = torch.randn(SIZES["hidden_size"], 8)
    save_file(weights, tmp_path / "adapter_model.safetensors")
    return tmp_path


async def test_an_adapter_answers_under_its_own_name(
    vllm_model: Path, adapter: Path, completion_request: Callable[..., GenerationRequest]
) -> None:
    request = completion_request(PROMPT, max_tokens=20, ignore_eos=True)
    async with running(vllm_model, loras={"adapted": str(adapter)}) as engine:
        (plain,), (adapted,), (again,) = [
            await engine.collect(replace(request, model=name)) for name in ("m", "adapted", "m")
        ]
    assert plain.ids == again.ids != adapted.ids
