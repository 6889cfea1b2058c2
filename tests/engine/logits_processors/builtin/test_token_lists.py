"""Lists of tokens."""

from collections.abc import Callable
from typing import Any

from tests.engine.logits_processors.builtin.rows import left_by, masked_by


def test_disallowed_and_allowed_tokens_are_each_request_s_own(built: Callable[..., Any]) -> None:
    for ids in ([3], [7, 9, 399]):
        assert masked_by(built("disallowed_tokens", {"token_ids": ids}), [5]) == ids
        assert left_by(built("allowed_tokens", {"token_ids": ids}), [5]) == ids
