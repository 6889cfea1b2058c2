"""Transformers classifiers. The result for a text does not depend on the other texts of its batch."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hooks.detect.detector import Match

MAX_ROWS = 64
"""Most rows (texts, or parts of texts) in one call of the model."""
_ANY_LENGTH = 4096
"""Most tokens of a row for a model whose config gives no limit."""
_TAG = re.compile(r"(?:(?P<begin>[BSU])|[IEL])-")
"""The prefix of a tag (BIO, BIOES, BILOU): whether an entity begins, continues or ends with the token."""


def load_classifier(
    path: str | Path, labels: Iterable[str] | None, threshold: float, device: str = "auto"
) -> "Classifying":
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


class Classifying:
    """A model and its tokenizer. The model gets texts as rows of tokens, with the padding masked."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, threshold: float) -> None:
        """Raises `ValueError` for a tokenizer that cannot give its tokens' places, or cannot pad."""
        if not tokenizer.is_fast:
            raise ValueError(f"{type(tokenizer).__name__} has no fast form (tokenizer.json), which is needed")
        if tokenizer.pad_token is None:
            if tokenizer.eos_token is None:
                raise ValueError("the tokenizer has no token to pad with")
            tokenizer.pad_token = tokenizer.eos_token
        if model.config.pad_token_id is None:
            model.config.pad_token_id = tokenizer.pad_token_id
        self.threshold = threshold
        max_length = _max_length(model.config, tokenizer)
        self.max_tokens = max_length - tokenizer.num_special_tokens_to_add()
        """Most tokens of a text in one row, without the special tokens."""
        # Two threads may use the fast tokenizer at once, because nobody changes it after this.
        self._tokenizer: Tokenizer = tokenizer.backend_tokenizer
        self._tokenizer.enable_truncation(max_length, stride=self.max_tokens // 4)
        self._tokenizer.enable_padding(pad_id=tokenizer.pad_token_id, pad_token=tokenizer.pad_token)
        self._tokenizer.encode_special_tokens = True  # a special token spelled out in a text is plain text
        self._has_types = "token_type_ids" in tokenizer.model_input_names
        self._model = model

    def num_tokens(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def __call__(self, texts: Sequence[str]) -> list[list[Match]]:
        """Return the matches in each text, with places counted from the text's start."""
        raise NotImplementedError

    @torch.inference_mode()
    def _rows(self, texts: Sequence[str]) -> Iterator[tuple[int, Encoding, Tensor]]:
        """Yield each text as one row or, if it is too long for the model, as several rows that overlap. A row
        has the index of its text, its tokens, and its logits, [labels] or [tokens, labels]. Raises
        `ValueError` for logits that are not finite."""
        encodings = self._tokenizer.encode_batch(list(texts))
        rows = [(i, row) for i, whole in enumerate(encodings) for row in (whole, *whole.overflowing)]
        for start in range(0, len(rows), MAX_ROWS):
            some = rows[start : start + MAX_ROWS]
            logits = self._model(**self._inputs([row for _, row in some])).logits.float().cpu()
            if not logits.isfinite().all():  # otherwise no score would reach the threshold
                raise ValueError("the model's scores are no numbers")
            for (owner, row), its in zip(some, logits, strict=True):
                yield owner, row, its

    def _inputs(self, rows: Sequence[Encoding]) -> dict[str, Tensor]:
        """Return the model's inputs, each [rows, tokens]."""
        inputs = {
            "input_ids": [row.ids for row in rows],
            "attention_mask": [row.attention_mask for row in rows],
        }
        if self._has_types:
            inputs["token_type_ids"] = [row.type_ids for row in rows]
        return {name: torch.tensor(values, device=self._model.device) for name, values in inputs.items()}


class TextClassifier(Classifying):
    """Judges a text as a whole: a match covers the whole text, under the label with the best score."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        labels: Iterable[str] | None,
        threshold: float,
    ) -> None:
        """Raises `ValueError` without labels, or for a label that the model does not have."""
        super().__init__(model, tokenizer, threshold)
        known = _names(model.config)
        if model.config.problem_type == "regression":
            raise ValueError("the model is for regression: what it says is no probability")
        if labels is None:
            raise ValueError(f"labels are needed, some of {', '.join(known)}")
        self._wanted = [(known.index(label), label) for label in _checked(labels, known)]
        self._is_each = model.config.problem_type == "multi_label_classification" or len(known) == 1
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


class TokenClassifier(Classifying):
    """Finds entities. A word's first token decides its entity, as most models are trained to do. Successive
    words of one entity are one match."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        labels: Iterable[str] | None,
        threshold: float,
    ) -> None:
        """Raises `ValueError` for a label that the model does not have."""
        super().__init__(model, tokenizer, threshold)
        tags = _names(model.config)
        entities = [_TAG.sub("", tag, count=1) for tag in tags]
        known = sorted({*entities} - {"O"})
        self._wanted = _checked(known if labels is None else labels, known)
        self._are = torch.tensor([[float(entity == one) for one in self._wanted] for entity in entities])
        """1 where a tag belongs to a wanted entity, else 0: [tags, wanted]."""
        begin = [float(bool((tag := _TAG.match(name)) and tag["begin"])) for name in tags]
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
        """`are`: each token's scores, [tokens, wanted]; `begin`: the part of each score that an entity begins
        at the token."""
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


def _names(config: PreTrainedConfig) -> list[str]:
    return [str(name) for _, name in sorted((config.id2label or {}).items())]


def _checked(labels: Iterable[str], known: Sequence[str]) -> list[str]:
    wanted = list(dict.fromkeys(labels))
    if unknown := [str(label) for label in wanted if label not in known]:
        raise ValueError(f"labels are some of {', '.join(known)}, not {', '.join(unknown)}")
    return wanted


def _max_length(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the most tokens of a row, including the special tokens."""
    positions = getattr(config, "max_position_embeddings", None) or 0
    # RoBERTa and its kin count positions from 2.
    return min(tokenizer.model_max_length, positions - 2 if positions > 2 else _ANY_LENGTH)
