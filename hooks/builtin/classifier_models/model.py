"""A classifier's model and tokenizer. The result for a text does not depend on its batch."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence

import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from hooks.detect.detector import Match

MAX_ROWS = 64
"""Most rows (texts, or parts of texts) in one call of the model."""
_ANY_LENGTH = 4096
"""Most tokens of a row for a model whose config gives no limit."""


class ClassifierModel(ABC):
    """A model and its tokenizer. The model gets texts as rows of tokens, with the padding masked."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        labels: Iterable[str] | None,
        threshold: float,
    ) -> None:
        """`labels`: the labels to find; None: all. `threshold`: the least score that counts, from 0 to 1.
        Raises `ValueError` for an unknown label, and a tokenizer that cannot pad or give tokens' places."""
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
        names = [str(name) for _, name in sorted((model.config.id2label or {}).items())]
        self._set_labels(names, None if labels is None else list(dict.fromkeys(labels)))

    @abstractmethod
    def _set_labels(self, names: list[str], labels: list[str] | None) -> None:
        """`names`: those that the model gives, in the order of its logits."""

    def num_tokens(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    @abstractmethod
    def __call__(self, texts: Sequence[str]) -> list[list[Match]]:
        """Return the matches in each text, with places counted from the text's start."""

    @torch.inference_mode()
    def _rows(self, texts: Sequence[str]) -> Iterator[tuple[int, Encoding, Tensor]]:
        """Yield each text as one row or, if it is too long, as several rows that overlap: the text's index,
        the row, its logits, [labels] or [tokens, labels]. Raises `ValueError` if a logit is not finite."""
        encodings = self._tokenizer.encode_batch(list(texts))
        rows = [(i, row) for i, whole in enumerate(encodings) for row in (whole, *whole.overflowing)]
        for start in range(0, len(rows), MAX_ROWS):
            some = rows[start : start + MAX_ROWS]
            logits = self._model(**self._inputs([row for _, row in some])).logits.float().cpu()
            if not logits.isfinite().all():  # otherwise no score would reach the threshold
                raise ValueError("the model's scores are not finite numbers")
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


def check_labels(labels: Iterable[str], known: Sequence[str]) -> None:
    """Raises `ValueError` for an unknown label."""
    if unknown := [str(label) for label in labels if label not in known]:
        raise ValueError(f"labels are some of {', '.join(known)}, not {', '.join(unknown)}")


def _max_length(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the most tokens of a row, including the special tokens."""
    positions = getattr(config, "max_position_embeddings", None) or 0
    # RoBERTa and its kin count positions from 2.
    return min(tokenizer.model_max_length, positions - 2 if positions > 2 else _ANY_LENGTH)
