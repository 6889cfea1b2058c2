"""The processors that ship validate their parameters."""

from typing import Any

import pytest

from engine.sampling.logits_processors import Context
from engine.sampling.logits_processors.load import ParamsError
from tests.engine.sampling.logits_processors.builtin.rows import THINKING, registered_as


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("bad_words", {"bad_words": [" "]}),
        ("bad_words", {"bad_words": "fox"}),
        ("bad_words", {"bad_words": ["x" * 1001]}),
        ("bad_words", {"bad_words": ["x"] * 1001}),
        ("allowed_tokens", {"token_ids": []}),
        ("disallowed_tokens", {"token_ids": [400]}),
        ("forced_sequence", {"token_ids": [True]}),
        ("no_repeat_ngram", {"ngram_size": 0, "window_size": 3}),
        ("no_repeat_ngram", {"ngram_size": 2}),
        ("thinking_budget", {"thinking_budget": -1}),
        ("watermark", {"delta": 3}),
    ],
)
def test_invalid_parameters_are_refused(name: str, params: dict[str, Any], context: Context) -> None:
    args: dict[str, dict[str, Any]] = {"thinking_budget": THINKING, "watermark": {"key": "k"}}
    with pytest.raises(ParamsError):
        registered_as(name, context, **args.get(name, {})).validate(params)
