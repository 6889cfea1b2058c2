"""Processors that keep state notice a shorter sequence."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.sampling.logits_processors.builtin.rows import END, START, THINKING, masked_by


@pytest.mark.parametrize("name", ["no_repeat_ngram", "thinking_budget"])
def test_a_processor_reads_again_when_the_sequence_got_shorter(name: str, built: Callable[..., Any]) -> None:
    rng = random.Random(1)
    params: dict[str, Any] = {
        "no_repeat_ngram": {"ngram_size": 2, "window_size": 9},
        "thinking_budget": {"thinking_budget": 4},
    }[name]
    args = THINKING if name == "thinking_budget" else {}
    lasting, ids = built(name, params, **args), [5, START]
    for _ in range(300):
        ids = [*ids[: rng.randint(2, len(ids))], rng.choice([4, 5, START, END, 6])]
        fresh = built(name, params, **args)
        for _ in range(2):
            assert masked_by(lasting, ids, 2) == masked_by(fresh, ids, 2)
