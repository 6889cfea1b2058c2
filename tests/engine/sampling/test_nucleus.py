"""Top-p drops what sorting the vocabulary drops: on a CPU, and elsewhere behind top-k."""

import pytest
import torch
from torch import Tensor

from engine.sampling.nucleus import dropped_by_top_p, dropped_by_top_p_of

TOP_PS = [1e-9, 0.1, 0.5, 0.9, 0.99, 0.9999999]


def dropped_by_sorting(logits: Tensor, top_ps: list[float]) -> Tensor:
    probs, ids = logits.softmax(-1).sort(stable=True)
    dropped = probs.cumsum(-1) <= logits.new_tensor([1 - p for p in top_ps]).unsqueeze(-1)
    dropped[:, -1] = False
    return dropped.scatter(-1, ids, dropped)


@pytest.mark.parametrize("scale", [0.0, 0.01, 1.0, 5.0, 50.0], ids=lambda scale: f"std {scale}")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["distinct", "many equal"])
def test_the_tokens_that_sorting_drops_are_dropped(scale: float, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    logits = (torch.randn(len(TOP_PS), 5000) * scale).to(dtype).float()
    assert torch.equal(dropped_by_top_p(logits, TOP_PS), dropped_by_sorting(logits, TOP_PS))


def test_masked_tokens_are_dropped() -> None:
    logits = torch.tensor([[1.0, float("-inf"), 1.0, 0.9, float("-inf")]])
    assert dropped_by_top_p(logits, [0.99]).tolist() == [[False, True, False, False, True]]


def test_of_equally_likely_tokens_the_higher_ids_are_kept() -> None:
    assert dropped_by_top_p(torch.zeros(1, 8), [0.5]).tolist() == [[True] * 4 + [False] * 4]


def test_the_most_likely_token_is_kept_even_if_it_is_the_only_one() -> None:
    logits = torch.tensor([[0.0, 100.0, 0.0]])
    assert dropped_by_top_p(logits, [1e-9]).tolist() == [[True, False, True]]


def test_a_row_that_is_not_numbers_leaves_the_others_alone() -> None:
    logits = torch.tensor(
        [[float("nan")] * 4, [float("-inf")] * 4, [float("inf"), 0.0, 0.0, 0.0], [9.0, 0, 0, 0]]
    )
    assert dropped_by_top_p(logits, [0.5] * 4)[3].tolist() == [False, True, True, True]


@pytest.mark.parametrize("scale", [0.0, 0.01, 1.0, 5.0, 50.0], ids=lambda scale: f"std {scale}")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["distinct", "many equal"])
@pytest.mark.parametrize("top_k", [1, 3, 20, 200, 5000])
def test_only_what_top_k_left_needs_sorting(scale: float, dtype: torch.dtype, top_k: int) -> None:
    """Top-k leaves all tokens that are as likely as the last of its k."""
    torch.manual_seed(1)
    logits = (torch.randn(len(TOP_PS), 5000) * scale).to(dtype).float()
    logits = logits.masked_fill(logits < logits.topk(top_k).values[:, -1:], float("-inf"))
    limits = logits.new_tensor([1 - p for p in TOP_PS]).unsqueeze(-1)
    found = dropped_by_top_p_of(top_k, logits, limits)
    assert torch.equal(
        logits.masked_fill(found, -torch.inf),
        logits.masked_fill(dropped_by_sorting(logits, TOP_PS), -torch.inf),
    )


def test_rows_of_different_top_k_are_sorted_together() -> None:
    logits = torch.tensor([[4.0, 3.0, -torch.inf, -torch.inf], [1.0, 1.0, 1.0, 1.0], [3.0, 2.0, 2.0, 2.0]])
    found = dropped_by_top_p_of(2, logits, torch.tensor([[0.5], [0.5], [0.1]]))
    assert torch.equal(found, dropped_by_sorting(logits, [0.5, 0.5, 0.9]))
