"""Loads a classifier of texts or of tokens from a folder or from the hub."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedModel,
)

from hooks.builtin.classifier_models.classifiers import TextClassifier, TokenClassifier
from hooks.builtin.classifier_models.model import ClassifierModel


def load_classifier(
    path: str | Path, labels: Iterable[str] | None, threshold: float, device: str = "auto"
) -> ClassifierModel:
    """Raises `ValueError` for a model that is no classifier or lacks a label, `OSError` if there is none."""
    if str(path).startswith((".", "/", "~")) and not Path(path).is_dir():
        raise ValueError(f"there is no folder {path}")
    config = AutoConfig.from_pretrained(path, trust_remote_code=False)
    architecture = (config.architectures or ["a model that does not say"])[0]
    for suffix, auto, cls in (
        ("ForSequenceClassification", AutoModelForSequenceClassification, TextClassifier),
        ("ForTokenClassification", AutoModelForTokenClassification, TokenClassifier),
    ):
        if architecture.endswith(suffix):
            tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
            return cls(_load(auto, path, device), tokenizer, labels, threshold)
    raise ValueError(f"{path} is {architecture}, which classifies neither texts nor tokens")


def _load(auto: Any, path: str | Path, device: str) -> PreTrainedModel:
    """Load in float32: with coarser rounding, a text's scores would depend on its batch."""
    model, info = auto.from_pretrained(
        path, dtype=torch.float32, trust_remote_code=False, output_loading_info=True
    )
    if missing := sorted(info["missing_keys"]):  # transformers would fill them with random values
        raise ValueError(f"{path} has no weights for {', '.join(missing)}")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    loaded: PreTrainedModel = model.to(device).eval()
    return loaded
