"""Classifiers that are trained in seconds: of texts, `fine` or `rude`, and of tokens, people and places."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

PROSE = """\
a heron stood at the weir and waited nobody hurried it boats came in with crates of fish that were sold before
market closed not bad said older man who had seen worse wrote down his book summer rained for most so they
mended nets drank tea told long stories about ships else remembered living would say then laugh 1 2 30 4111"""
PLAIN = PROSE.split()
RUDE = ["idiot", "moron", "numbskull"]
PEOPLE = ["Ada", "Bruno", "Chloe", "Dmitri"]
SURNAMES = ["Ames", "Bell", "Cole", "Dunn"]
PLACES = ["Lisbon", "Osaka", "Tunis"]
MARKS = ",.;!?\"'{}[]:"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
TAGS = ["O", "B-PER", "I-PER", "B-LOC"]
VOCAB_SIZE = 400
MAX_LENGTH = 80
"""Tokens that the models take, the special ones included."""


def train_text_classifier(folder: Path) -> None:
    """Whether a text has one of `RUDE`."""
    config = _config(id2label={0: "fine", 1: "rude"})

    def labels(said: list[tuple[str, str]], words: list[int | None]) -> int:
        return int(any(word in RUDE for word, _ in said))

    _train(BertForSequenceClassification, config, labels, folder)


def train_token_classifier(folder: Path) -> None:
    """Each word's tag, taught on its first token alone, as most are."""
    config = _config(id2label=dict(enumerate(TAGS)))

    def labels(said: list[tuple[str, str]], words: list[int | None]) -> list[int]:
        firsts = [word is not None and word not in words[:i] for i, word in enumerate(words)]
        return [
            TAGS.index(said[word][1]) if is_first and word is not None else -100
            for word, is_first in zip(words, firsts, strict=True)
        ]

    _train(BertForTokenClassification, config, labels, folder)


def _train(
    cls: type[PreTrainedModel],
    config: BertConfig,
    labels: Callable[[list[tuple[str, str]], list[int | None]], object],
    folder: Path,
) -> None:
    torch.manual_seed(0)
    rng, tokenizer = random.Random(0), make_tokenizer()
    model = cls(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(200):
        said = [_said(rng) for _ in range(32)]
        batch = tokenizer(
            [[word for word, _ in one] for one in said],
            is_split_into_words=True,
            padding=True,
            return_tensors="pt",
        )
        taught = [labels(one, batch.word_ids(i)) for i, one in enumerate(said)]
        loss = model(**batch, labels=torch.tensor(taught)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _said(rng: random.Random) -> list[tuple[str, str]]:
    """Words and their tags."""
    said: list[tuple[str, str]] = []
    is_rude = rng.random() < 0.5
    for _ in range(rng.randint(1, 12)):
        kind = rng.random()
        if kind < 0.1:
            said += [(rng.choice(PEOPLE), "B-PER"), (rng.choice(SURNAMES), "I-PER")][: rng.randint(1, 2)]
        elif kind < 0.2:
            said.append((rng.choice(PLACES), "B-LOC"))
        elif kind < 0.3 and is_rude:
            said.append((rng.choice(RUDE), "O"))
        elif kind < 0.5:
            said.append((rng.choice(MARKS), "O"))
        else:
            said.append((rng.choice(PLAIN), "O"))
    return said


def _config(**more: Any) -> BertConfig:
    return BertConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=MAX_LENGTH + 2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=0,
        **more,
    )


def make_tokenizer() -> PreTrainedTokenizerFast:
    """WordPiece, which spells the words that it does not know, as half of the names."""
    spelt = {letter for word in PEOPLE + SURNAMES + PLAIN for letter in word}
    pieces = [*SPECIAL, *PLAIN, *RUDE, *PEOPLE[:2], *SURNAMES[:2], *PLACES, *MARKS, *sorted(spelt)]
    pieces += [f"##{letter}" for letter in sorted(spelt)]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=MAX_LENGTH,
    )
