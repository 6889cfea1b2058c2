"""Perplexity of a model as the engine runs it, and a GGUF model's weights without its file's rounding."""

import math
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AutoConfig

from benchmarks.public_text import texts
from engine.core.engine_core import EngineCore
from engine.core.input_processor import InputProcessor
from engine.device.kernels.quantized import QuantizedWeight
from engine.execution.model_runner import ModelRunner
from engine.models.quantized import quantize_int4, quantize_int8
from engine.models.transformers_model import TransformersModel
from engine.protocol import GenerationRequest, SamplingParams
from engine.protocol.options import EngineConfig
from engine.sources.model_config import FAMILY
from engine.sources.names import located
from engine.sources.transformers_files import read_tokenizer
from engine.text.tokenizer import LocalTokenizer

CACHE = 2**27
"""Bytes for keys and values: one text at a time has room."""


class Row(NamedTuple):
    """A text, and which of its tokens the model is judged by."""

    ids: list[int]
    are_judged: list[bool]


@cache
def _tokenizer(model: str) -> LocalTokenizer:
    return LocalTokenizer.load(model)


def public_rows(model: str, length: int) -> list[Row]:
    """The first `length` tokens of each public text, all but the first one judged."""
    tokenizer = _tokenizer(model)
    found = [tokenizer.encode(text)[:length] for text in texts()]
    return [Row(ids, [i > 0 for i in range(len(ids))]) for ids in found]


def load(model: str, dtype: str = "bfloat16", **settings: Any) -> ModelRunner:
    """Raises `ValueError` for a model that does not run with these settings."""
    config = EngineConfig(
        model=model,
        dtype=dtype,
        enable_prefix_caching=False,
        kv_cache_memory=CACHE,
        max_model_len=1024,
        **settings,
    )
    return ModelRunner.load(config)


def perplexity(model: str, runner: ModelRunner, rows: Iterable[Row]) -> float:
    """`model`: the name of the tokenizer."""
    losses: list[float] = []
    for row in rows:
        most = runner.max_model_len - 1
        ids, are_judged = row.ids[:most], row.are_judged[:most]
        found = logprobs_of(model, runner, ids)
        losses += [-logprob for logprob, judged in zip(found, are_judged[1:], strict=True) if judged]
    return math.exp(sum(losses) / len(losses))


def logprobs_of(model: str, runner: ModelRunner, ids: list[int]) -> list[float]:
    """The logprob of each token but the first, after those before it."""
    config = EngineConfig(model=model, enable_prefix_caching=False)
    tokenizer = _tokenizer(model)
    core = EngineCore(runner, tokenizer, config)
    processor = InputProcessor.make(tokenizer, runner, config)
    request = GenerationRequest(
        request_id="r",
        model="m",
        endpoint="completions",
        prompts=(tuple(ids),),
        sampling=SamplingParams(temperature=0.0, max_tokens=1, logprobs=0),
        echo=True,
    )
    group = processor.process(request)
    core.add(group)
    while core.has_work:
        core.step()
    return [found.logprob for found in group.sequences[0].prompt_logprobs]


def unpack(model: str, folder: Path) -> None:
    """Write a GGUF model to `folder` with all weights in bfloat16, as a model of the hub has them."""
    runner = load(model, model_impl="transformers")
    assert isinstance(runner.model, TransformersModel)
    runner.model.model.save_pretrained(folder)
    read_tokenizer(located(model, with_weights=False)).save_pretrained(folder)


def load_rounded(model: str, quantization: str, quantization_group_size: int = 32) -> ModelRunner:
    """With rounded weights, also a model that transformers' code runs. That has no kernels for whole numbers:
    its matrices become what the rounding makes of them, but the one that gives the logits."""
    config = AutoConfig.from_pretrained(model)
    if config.model_type in FAMILY:
        return load(model, quantization=quantization, quantization_group_size=quantization_group_size)
    runner = load(model, "float32", model_impl="transformers")
    quantize = quantize_int8
    if quantization == "int4":
        quantize = partial(quantize_int4, group_size=quantization_group_size)
    _round_matrices(runner, quantize)
    return runner


@torch.inference_mode()
def _round_matrices(runner: ModelRunner, quantize: Callable[[Tensor], QuantizedWeight]) -> None:
    assert isinstance(runner.model, TransformersModel)
    model = runner.model.model
    for module in model.modules():
        if isinstance(module, nn.Linear) and module is not model.get_output_embeddings():
            module.weight.copy_(quantize(module.weight).dequantized())
