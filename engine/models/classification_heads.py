"""Heads that classify every token of a text, in place of the matrix that gives the next token's logits.

Qwen3Guard-Stream has such heads, and so have transformers' models for token classification.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.models.checkpoint import Checkpoint
from engine.models.heads import QWEN3_GUARD, ClassificationHeads, Head, Labels, MakeLinear
from engine.sources.model_config import ModelConfig

GUARD_GROUPS = {
    "risk_level": "response_risk_level_map",
    "category": "response_category_map",
    "query_risk_level": "query_risk_level_map",
    "query_category": "query_category_map",
}
"""The groups of Qwen3Guard-Stream, and the names of their labels' maps in its `config.json`."""


def classification_heads(config: ModelConfig) -> ClassificationHeads:
    """The heads of a model that classifies tokens. Raises `ValueError` if the configuration lacks the
    labels."""
    if QWEN3_GUARD in (config.architectures or ()):
        labels = {group: _label_names(config, name) for group, name in GUARD_GROUPS.items()}
        return GuardHeads(labels, config.rms_norm_eps)
    return LinearHead(_label_names(config, "id2label"))


class LinearHead:
    """Implements `ClassificationHeads`: one matrix, of a `...ForTokenClassification` of transformers."""

    def __init__(self, labels: tuple[str, ...]) -> None:
        self.labels: Labels = {"labels": labels}

    def take(self, checkpoint: Checkpoint, make_linear: MakeLinear) -> Head:
        name = "score" if "score.weight" in checkpoint else "classifier"
        weight = _take_head(checkpoint, name, self.labels["labels"])
        bias = checkpoint.take_any(f"{name}.bias")
        bias = None if bias is None else bias.float()
        return lambda x: F.linear(x.float(), weight, bias)


class GuardHeads:
    """Implements `ClassificationHeads`: those of Qwen3Guard-Stream. One pair judges replies, the other one
    judges prompts (`query_`). A pair shares a matrix and a norm, with no activation between."""

    def __init__(self, labels: Labels, rms_norm_eps: float) -> None:
        self.labels = labels
        self._eps = rms_norm_eps

    def take(self, checkpoint: Checkpoint, make_linear: MakeLinear) -> Head:
        pairs = [self._pair(checkpoint, prefix) for prefix in ("", "query_")]
        pre = make_linear(torch.cat([pair.pre for pair in pairs]), None)
        sizes = [pair.pre.shape[0] for pair in pairs]

        def head(x: Tensor) -> Tensor:
            parts = torch.split(pre(x).float(), sizes, dim=1)
            return torch.cat([self._logits(*both) for both in zip(pairs, parts, strict=True)], dim=1)

        return head

    def _pair(self, checkpoint: Checkpoint, prefix: str) -> "_Pair":
        pre = checkpoint.take(f"{prefix}risk_level_category_pre.weight")
        norm = checkpoint.take(f"{prefix}risk_level_category_layernorm.weight")
        groups = (f"{prefix}risk_level", f"{prefix}category")
        heads = [_take_head(checkpoint, f"{group}_head", self.labels[group]) for group in groups]
        if not len(pre) == len(norm) == heads[0].shape[1] == heads[1].shape[1]:
            raise ValueError(f"the tensors of {' and '.join(groups)} do not fit together")
        return _Pair(pre, norm.float(), torch.cat(heads))

    def _logits(self, pair: "_Pair", x: Tensor) -> Tensor:
        return F.linear(F.rms_norm(x, pair.norm.shape, pair.norm, self._eps), pair.heads)


class _Pair(NamedTuple):
    pre: Tensor
    """`[inner, hidden]`, in the model's type."""
    norm: Tensor
    """`[inner]`, float32."""
    heads: Tensor
    """Risk levels, then categories, `[logits, inner]`, float32."""


def _take_head(checkpoint: Checkpoint, name: str, labels: tuple[str, ...]) -> Tensor:
    """`[logits, in]`, float32."""
    weight = checkpoint.take(f"{name}.weight").float()
    if len(weight) != len(labels):
        raise ValueError(f"{name}.weight gives {len(weight)} logits, and there are {len(labels)} labels")
    return weight


def _label_names(config: ModelConfig, name: str) -> tuple[str, ...]:
    """The labels of a map from 0, 1, ... to labels, or the other way round. JSON has its keys as text."""
    labels: Any = getattr(config, name, None)
    if not isinstance(labels, Mapping):
        raise ValueError(f"its configuration has no {name}")
    if all(isinstance(label, int) for label in labels.values()):
        labels = {number: label for label, number in labels.items()}
    by_id = {str(key): str(label) for key, label in labels.items()}
    if by_id.keys() != {str(i) for i in range(len(by_id))} or not by_id:
        raise ValueError(f"its {name} does not number the labels from 0")
    return tuple(by_id[str(i)] for i in range(len(by_id)))
