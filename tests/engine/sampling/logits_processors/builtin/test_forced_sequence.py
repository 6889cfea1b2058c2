"""A forced sequence comes whatever the model says."""

from collections.abc import Callable
from typing import Any

import pytest

from engine.sampling.logits_processors import Context
from tests.engine.conftest import VOCAB_SIZE
from tests.engine.sampling.logits_processors.builtin.rows import left_by, registered_as


def test_a_forced_sequence_is_followed_by_the_end(built: Callable[..., Any]) -> None:
    for params, end in (({}, 1), ({"eos_token_id": 77}, 77)):
        processor = built("forced_sequence", {"token_ids": [40, 50], **params})
        ids = [5, 6, 7]
        for expected in (40, 50, end, end):
            assert left_by(processor, ids, 3) == [expected]
            ids.append(expected)


def test_a_forced_sequence_needs_an_end(context: Context) -> None:
    endless = Context(context.tokenizer, VOCAB_SIZE, (), context.device)
    registered = registered_as("forced_sequence", endless)
    with pytest.raises(ValueError, match="no end-of-sequence token"):
        registered.build(params=registered.validate({"token_ids": [4]}))
