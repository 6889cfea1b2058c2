"""Classifiers, loaded from a folder or the hub: they find labels of whole texts, or entities in texts."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Encoding
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedModel,
)

from hooks.builtin.classifier_models.model import ClassifierModel, check_labels
from hooks.detect.detector import Match

_TAG = re.compile(r"(?:(?P<begin>[BSU])|[IEL])-")
"""The prefix of a tag (BIO, BIOES, BILOU): whether an entity begins, continues or ends with the token."""


class TextClassifier(ClassifierModel):
    """Judges a text as a whole: a match covers the whole text, under the label with the best score."""

    def _set_labels(self, names: list[str], labels: list[str] | None) -> None:
        problem_type = self._model.config.problem_type
        if problem_type == "regression":
            raise ValueError("the model is for regression: its outputs are not probabilities")
        if labels is None:
            raise ValueError(f"labels are needed, some of {', '.join(names)}")
        check_labels(labels, names)
        self._wanted = [(names.index(label), label) for label in labels]
        self._is_each = problem_type == "multi_label_classification" or len(names) == 1
        """Each label has its own score from 0 to 1; otherwise the scores of all labels sum to 1."""

    def __call__(self, texts: Sequence[str]) -> list[list[Match]]:
        best = [(0.0, "")] * len(texts)
        for owner, _, logits in self._rows(texts):
            scores = (logits.sigmoid() if self._is_each else logits.softmax(-1)).tolist()
            best[owner] = max(best[owner], *((scores[i], label) for i, label in self._wanted))
        return [
            [Match(0, len(text), label)] if score >= self.threshold else []
            for text, (score, label) in zip(texts, best, strict=True)
        ]


class TokenClassifier(ClassifierModel):
    """Finds entities. A word's first token decides its entity, as most models are trained to do. Successive
    words of one entity are one match."""

    def _set_labels(self, names: list[str], labels: list[str] | None) -> None:
        entities = [_TAG.sub("", tag, count=1) for tag in names]
        known = sorted({*entities} - {"O"})
        self._wanted = known if labels is None else labels
        check_labels(self._wanted, known)
        self._are = torch.tensor([[float(entity == one) for one in self._wanted] for entity in entities])
        """1 where a tag belongs to a wanted entity, else 0: [tags, wanted]."""
        begin = [float(bool((tag := _TAG.match(name)) and tag["begin"])) for name in names]
        self._begin = self._are * torch.tensor(begin).unsqueeze(-1)

    def __call__(self, texts: Sequence[str]) -> list[list[Match]]:
        found: list[list[Match]] = [[] for _ in texts]
        for owner, row, logits in self._rows(texts):
            scores = logits.softmax(-1)
            are = scores @ self._are
            if (are >= self.threshold).any():
                begin = scores @ self._begin
                found[owner] += self._entities(texts[owner], row, are.tolist(), begin.tolist())
        return found

    def _entities(
        self, text: str, row: Encoding, are: list[list[float]], begin: list[list[float]]
    ) -> Iterator[Match]:
        """`are`: each token's scores, [tokens, wanted]; `begin`: the part of each that an entity begins."""
        entity: Match | None = None
        for start, end, first in _words(text, row):
            score, which, token = max((one, i, token) for token in first for i, one in enumerate(are[token]))
            is_one, name = score >= self.threshold, self._wanted[which]
            goes_on = begin[token][which] <= score / 2
            if entity is not None and is_one and name == entity.entity and goes_on:
                entity = entity._replace(end=end)
                continue
            if entity is not None:
                yield entity
            entity = Match(start, end, name) if is_one else None
        if entity is not None:
            yield entity


def _words(text: str, row: Encoding) -> Iterator[tuple[int, int, list[int]]]:
    """Yield the start and end in `text` of the row's words and punctuation marks, with the indices of their
    first tokens. A word has several first tokens if the white space before it is a token too."""
    numbers, offsets = row.word_ids, row.offsets  # each access makes new lists
    words: list[list[int]] = []
    for token, number in enumerate(numbers):
        if number is None:
            continue
        if words and numbers[words[-1][-1]] == number and _is_joined(text, offsets[token][0]):
            words[-1].append(token)
        else:
            words.append([token])
    for word in words:
        start, end = offsets[word[0]][0], offsets[word[-1]][1]
        if found := text[start:end].strip():
            start += text[start:end].index(found)
            yield start, start + len(found), [token for token in word if offsets[token][0] <= start]


def _is_joined(text: str, place: int) -> bool:
    """Whether the token at `place` continues the word before it, which has the same number."""
    if place == 0 or text[place - 1].isspace():
        return True
    return text[place - 1].isalnum() and text[place : place + 1].isalnum()


def load_classifier(
    path: str | Path, labels: Iterable[str] | None, threshold: float, device: str = "auto"
) -> ClassifierModel:
    """Raises `ValueError` for a model that is not a classifier or lacks a label, `OSError` if none exists."""
    path = os.path.expanduser(path)
    if path.startswith((".", "/", "~")) and not Path(path).is_dir():
        raise ValueError(f"folder {path} not found")
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
