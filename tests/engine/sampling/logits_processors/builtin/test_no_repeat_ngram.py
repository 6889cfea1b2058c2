"""No run of tokens is repeated within a window."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import NoRepeatNGramLogitsProcessor

from tests.engine.sampling.logits_processors.builtin.rows import masked_by, row


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_repeated_ngrams_are_forbidden_as_in_transformers(size: int, built: Callable[..., Any]) -> None:
    rng = random.Random(size)
    for _ in range(30):
        processor = built("no_repeat_ngram", {"ngram_size": size, "window_size": 10**6})
        ids: list[int] = []
        for _ in range(40):
            ids.append(rng.randrange(5))
            theirs = NoRepeatNGramLogitsProcessor(size)(torch.tensor([ids]), row()[None].clone())
            assert masked_by(processor, ids) == theirs[0].isneginf().nonzero().flatten().tolist()


def test_window_and_whitelist_match_a_plain_search(built: Callable[..., Any]) -> None:
    """The search is the one of DeepSeek-OCR."""
    rng = random.Random(0)
    for _ in range(200):
        size, window = rng.randint(1, 4), rng.randint(1, 25)
        whitelist = rng.sample(range(5), rng.randint(0, 2))
        params = {"ngram_size": size, "window_size": window, "whitelist_token_ids": whitelist}
        processor = built("no_repeat_ngram", params)
        ids: list[int] = []
        for _ in range(rng.randint(1, 40)):
            ids.append(rng.randrange(5))
            last = ids[len(ids) - size + 1 :]
            begins = range(max(0, len(ids) - window), len(ids) - size + 1)
            banned = {ids[i + size - 1] for i in begins if ids[i : i + size - 1] == last}
            if len(ids) >= size - 1:
                assert masked_by(processor, ids) == sorted(banned - set(whitelist))
