"""The options of the in-process engine have limits."""

from typing import Any

import pytest

from engine.protocol.options import EngineConfig
from proxy.settings.groups import help_texts


def test_every_option_has_a_default_and_a_help_text() -> None:
    assert EngineConfig() == EngineConfig(share_outputs=True)
    assert help_texts(EngineConfig).keys() == EngineConfig.model_fields.keys()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_model_len", 0),
        ("max_num_seqs", 0),
        ("max_num_batched_tokens", 0),
        ("max_num_prefill_tokens", 0),
        ("block_size", 0),
        ("num_threads", 0),
        ("max_queue_len", -1),
        ("num_speculative_tokens", -1),
        ("prompt_lookup_min", 0),
        ("prompt_lookup_min", 5),  # more than prompt_lookup_max
        ("speculative_model", "no-tokens-to-guess"),
        ("speculative_method", "draft_model"),  # without a speculative_model
        ("dtype", "float64"),
        ("reasoning_parser", "unknown"),
        ("unknown", 1),
    ],
)
def test_a_value_out_of_range_is_refused(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=option):
        EngineConfig(**{option: value})


def test_options_cannot_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        EngineConfig().max_num_seqs = 1
