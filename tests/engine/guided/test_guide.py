"""A guide follows its sequence, forwards and back."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.guided.conftest import EOS, allowed


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
