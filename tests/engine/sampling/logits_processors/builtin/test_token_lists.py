"""A list of tokens is forbidden, or all other tokens are."""

from collections.abc import Callable
from typing import Any

from tests.engine.sampling.logits_processors.builtin.rows import left_by, masked_by


def test_each_request_has_its_own_list_of_disallowed_or_allowed_tokens(built: Callable[..., Any]) -> None:
    for ids in ([3], [7, 9, 399]):
        assert masked_by(built("disallowed_tokens", {"token_ids": ids}), [5]) == ids
        assert left_by(built("allowed_tokens", {"token_ids": ids}), [5]) == ids
