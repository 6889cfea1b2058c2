"""A guide follows its sequence, forwards and back. The mask of a batch has the right bits."""

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine.sampling.guided.guide import LIMITS, GuidedMask, unpack
from tests.engine.conftest import VOCAB_SIZE
from tests.engine.sampling.guided.conftest import EOS, allowed


def test_tokens_taken_back_are_forgotten(guide_of: Callable[..., Any]) -> None:
    guide = guide_of(guided_regex="[a-z]{4}[0-9]{4}")
    ids, steps, rng = guide.seq.token_ids, [], random.Random(3)
    while not guide.must_end:
        steps.append(allowed(guide))
        assert allowed(guide) == steps[-1], "a repeated call gives the same tokens"
        ids.append(rng.choice(steps[-1]))
    assert allowed(guide) == [EOS]
    for num in (3, 1, 0):
        del ids[2 + num :]
        assert allowed(guide) == steps[num]
        assert not guide.must_end


def test_a_token_outside_the_grammar_fails_the_guide(guide_of: Callable[..., Any]) -> None:
    guide = guide_of(guided_regex="[a-z]+")
    guide.seq.token_ids.append(EOS)
    with pytest.raises(ValueError, match="grammar"):
        allowed(guide)


def test_several_threads_find_the_same_tokens_as_one(guide_of: Callable[..., Any]) -> None:
    guides = [
        guide_of(guided_regex=regex) for regex in ("[a-z]+", "[0-9]*", "x", "the .*", "(a|b)c", "", "q")
    ]
    one, three = (GuidedMask(torch.device("cpu"), num_threads) for num_threads in (1, 3))
    params = [{"guide": guide} for guide in guides]
    expected = one(torch.zeros(7, VOCAB_SIZE), params)
    assert len({tuple(row) for row in expected.tolist()}) == 7
    assert torch.equal(three(torch.zeros(7, VOCAB_SIZE), params), expected)
    guides[4].seq.token_ids.append(EOS)
    for mask in (one, three):
        with pytest.raises(ValueError, match="grammar"):
            mask(torch.zeros(7, VOCAB_SIZE), params)
        assert torch.equal(mask(torch.zeros(2, VOCAB_SIZE), params[5:]), expected[5:])


def test_bits_are_unpacked_in_order() -> None:
    expected = torch.rand(3, 77, generator=torch.Generator().manual_seed(1)) < 0.5
    padded = torch.nn.functional.pad(expected, (0, 19)).view(3, 3, 32)
    words = [[sum(bool(bit) << i for i, bit in enumerate(word)) for word in row] for row in padded]
    bits = torch.tensor(words, dtype=torch.int64).to(torch.int32)
    assert torch.equal(unpack(bits, LIMITS)[:, :77] == math.inf, expected)
    assert unpack(bits, LIMITS).isinf().all()
