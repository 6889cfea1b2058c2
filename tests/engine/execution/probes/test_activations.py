"""Activations to train probes on are those of transformers, in any batches."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine.execution.probes.activations import activations
from tests.engine.conftest import random_prompts
from tests.engine.device.steps import graphs_of
from tests.engine.execution.probes.made import activations_of

LAYERS = ("model.norm", "model.layers.0")


@pytest.mark.parametrize("settings", [{}, {"model_impl": "transformers"}], ids=["own", "transformers"])
@pytest.mark.parametrize("most", [7, 64, 2048])
def test_activations_equal_those_of_transformers(
    tiny_core: Callable[..., Any], tiny_model: Callable[[str], Any], settings: dict[str, Any], most: int
) -> None:
    runner = tiny_core("qwen3", **settings).core.runner
    texts = random_prompts(9, longest=60)
    found = list(activations(runner, texts, LAYERS, max_num_batched_tokens=most))
    assert len(found) == len(texts)
    for ids, inputs in zip(texts, found, strict=True):
        expected = activations_of(tiny_model("qwen3").model, ids, LAYERS)
        assert torch.allclose(inputs, expected, atol=1e-4)


def test_activations_of_short_texts_are_not_left_to_graphs(
    tiny_core: Callable[..., Any], tiny_model: Callable[[str], Any]
) -> None:
    runner = tiny_core("qwen3", cpu_kernels="torch").core.runner
    with torch.inference_mode():
        graphs = runner.graphs = graphs_of(runner)
    texts = [[5, 6, 7], [9, 10, 11, 12]]
    for ids, inputs in zip(texts, activations(runner, texts, LAYERS), strict=True):
        expected = activations_of(tiny_model("qwen3").model, ids, LAYERS)
        assert torch.allclose(inputs, expected, atol=1e-4)
    assert runner.graphs is graphs


@pytest.mark.parametrize(
    ("texts", "layers", "reason"),
    [
        ([[5]], ("model.layers.9",), r"it has no layer model\.layers\.9"),
        ([[5], []], LAYERS, "a text has 0 tokens, and may have 1 to 512"),
        ([[5] * 513], LAYERS, "a text has 513 tokens"),
    ],
)
def test_what_cannot_be_read_is_refused(
    tiny_core: Callable[..., Any], texts: list[list[int]], layers: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        list(activations(tiny_core("qwen3").core.runner, texts, layers))
