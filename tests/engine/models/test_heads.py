"""The heads of models that classify tokens, against the same model in plain torch."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    LlamaConfig,
    LlamaForTokenClassification,
    Qwen2Config,
    Qwen2ForTokenClassification,
    Qwen3Config,
    Qwen3ForTokenClassification,
)

from engine.execution.model_runner import ModelRunner
from engine.protocol.options import EngineConfig
from tests.engine.device.classifiers import GUARD_LABELS, GuardModel, save_guard
from tests.engine.device.decoders import SIZES, prompts_of

CUTS = (1, 7, 16, 1000)
CLASSIFIERS = {
    "llama": (LlamaConfig, LlamaForTokenClassification),
    "qwen2": (Qwen2Config, Qwen2ForTokenClassification),
    "qwen3": (Qwen3Config, Qwen3ForTokenClassification),
}


@dataclass
class EveryToken:
    """Implements `Span`: the logits of all its tokens are wanted."""

    token_ids: list[int]
    start: int
    block_table: list[int] = field(default_factory=list)
    drawn_row: int | None = None
    prompt_logprob_positions: range = range(0)

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    num_samples = num_tokens


def logits_of(runner: ModelRunner, texts: list[list[int]], cut: int) -> list[torch.Tensor]:
    """The logits of every token of each text. A step computes the next `cut` tokens of all texts."""
    size = runner.kv_cache.block_size
    blocks = iter(torch.randperm(runner.kv_cache.num_blocks, generator=torch.manual_seed(0)).tolist())
    tables = [[next(blocks) for _ in range(-(-len(text) // size))] for text in texts]
    found: list[list[torch.Tensor]] = [[] for _ in texts]
    for begin in range(0, max(map(len, texts)), cut):
        step = [i for i, text in enumerate(texts) if begin < len(text)]
        spans = [EveryToken(texts[i][begin : begin + cut], begin, tables[i]) for i in step]
        rows, _ = runner.run(spans)
        for i, part in zip(step, rows.split([s.num_tokens for s in spans]), strict=True):
            found[i].append(part.clone())
    return [torch.cat(parts) for parts in found]


def runner_of(path: Path, **options: Any) -> ModelRunner:
    return ModelRunner.load(EngineConfig(model=str(path), num_threads=1, max_num_seqs=8, **options))


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> GuardModel:
    return save_guard(tmp_path_factory.mktemp("guard"))


@pytest.mark.parametrize("kernels", ["native", "torch"])
@pytest.mark.parametrize("cut", CUTS)
def test_logits_of_a_guard_are_those_of_a_plain_reference(kernels: Any, cut: int, guard: GuardModel) -> None:
    runner = runner_of(guard.path, cpu_kernels=kernels)
    assert runner.model.labels == GUARD_LABELS
    texts = prompts_of(1, 70, 16, 43)
    for text, found in zip(texts, logits_of(runner, texts, cut), strict=True):
        assert torch.allclose(found, guard.logits(text), atol=1e-4), (found - guard.logits(text)).abs().max()


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("head", ["score", "classifier"])
def test_logits_of_a_linear_head_are_those_of_transformers(name: str, head: str, tmp_path: Path) -> None:
    make_config, make_model = CLASSIFIERS[name]
    sizes = {k: v for k, v in SIZES.items() if k != "head_dim" or name == "qwen3"}
    torch.manual_seed(3)
    labels = {0: "fine", 1: "bad", 2: "worse"}
    model = make_model(make_config(**sizes, id2label=labels)).eval()
    torch.nn.init.normal_(model.score.bias)
    model.save_pretrained(tmp_path)
    rename(tmp_path / "model.safetensors", "score", head)
    runner = runner_of(tmp_path)
    assert runner.model.labels == {"labels": ("fine", "bad", "worse")}
    (text,) = prompts_of(50)
    with torch.inference_mode():
        expected = model(torch.tensor([text])).logits[0]
    for cut in CUTS:
        assert torch.allclose(logits_of(runner, [text], cut)[0], expected, atol=1e-4)


def rename(file: Path, old: str, new: str) -> None:
    tensors = {name.replace(f"{old}.", f"{new}."): tensor for name, tensor in load_file(file).items()}
    save_file(tensors, file, metadata={"format": "pt"})


@pytest.mark.parametrize("quantization", [None, "int8"])
def test_bfloat16_and_rounded_weights_keep_the_labels(quantization: Any, guard: GuardModel) -> None:
    runner = runner_of(guard.path, dtype="bfloat16", quantization=quantization)
    texts = prompts_of(60, 61, 62, 63)
    for cut in CUTS:
        for text, found in zip(texts, logits_of(runner, texts, cut), strict=True):
            assert found.dtype == torch.float32
            assert torch.cosine_similarity(found, guard.logits(text)).min() > 0.95


def test_a_map_may_name_the_numbers_of_labels(guard: GuardModel, tmp_path: Path) -> None:
    copy(guard, tmp_path, response_risk_level_map={"Unsafe": 1, "Safe": 0, "Controversial": 2})
    assert runner_of(tmp_path).model.labels == GUARD_LABELS


@pytest.mark.parametrize(
    ("change", "tensors", "reason"),
    [
        ({"response_category_map": None}, {}, "no response_category_map"),
        ({"query_category_map": {"1": "a", "2": "b"}}, {}, "query_category_map does not number"),
        ({"response_risk_level_map": {"0": "Safe"}}, {}, "risk_level_head.weight gives 3 logits"),
        ({}, {"category_head.weight": torch.ones(8, 21)}, "do not fit together"),
        ({}, {"query_category_head.weight": None}, "query_category_head.weight' is missing"),
        ({}, {"another_head.weight": torch.ones(2, 2)}, "another_head"),
    ],
)
@pytest.mark.parametrize("model_impl", ["auto", "weir"])
def test_a_checkpoint_with_other_heads_is_refused(
    change: dict[str, Any],
    tensors: dict[str, Any],
    reason: str,
    model_impl: Any,
    guard: GuardModel,
    tmp_path: Path,
) -> None:
    copy(guard, tmp_path, tensors, **change)
    with pytest.raises(ValueError, match=reason):
        runner_of(tmp_path, model_impl=model_impl)


def copy(guard: GuardModel, path: Path, tensors: dict[str, Any] | None = None, **change: Any) -> None:
    """Save the model with other tensors and another configuration. A tensor that is None is left out."""
    changed = load_file(guard.path / "model.safetensors") | (tensors or {})
    save_file({name: t for name, t in changed.items() if t is not None}, path / "model.safetensors")
    config = json.loads((guard.path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | change))


def test_transformers_runs_no_model_that_classifies_tokens(guard: GuardModel) -> None:
    with pytest.raises(ValueError, match="need Weir's own decoder"):
        runner_of(guard.path, model_impl="transformers")


def test_such_a_model_guesses_no_tokens(guard: GuardModel, tmp_path: Path) -> None:
    LlamaConfig(**SIZES).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="speculative_model"):
        runner_of(tmp_path, speculative_model=str(guard.path), num_speculative_tokens=2)
