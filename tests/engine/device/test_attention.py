"""Attention by torch's own operators, against attention in float32 over each token's own keys."""

from typing import Any

import pytest
import torch

from engine.device.attention import PagedAttention
from engine.device.kv_cache import LayerShape
from tests.engine.device.attention_cases import DEVICE, Case

SINKS = torch.tensor([0.5, -1.0, 9.0, 0.0], device=DEVICE)


@pytest.mark.parametrize(
    "scoring",
    [
        {},
        {"sliding_window": 1},
        {"sliding_window": 33},
        {"scaling": 0.5},
        {"softcap": 2.0},
        {"s_aux": SINKS},
        {"scaling": 0.3, "softcap": 5.0, "sliding_window": 33, "s_aux": SINKS},
    ],
)
@pytest.mark.parametrize("heads", [2, 4, 6])
def test_every_kind_of_token_sees_its_keys(heads: int, scoring: dict[str, Any]) -> None:
    if scoring.get("s_aux") is not None:
        scoring = scoring | {"s_aux": SINKS[:2].repeat(heads // 2)}
    case = Case(heads=heads, **scoring)
    assert torch.allclose(case.attend(PagedAttention), case.expected(), atol=2e-5)


def test_keys_and_values_may_differ_in_size() -> None:
    case = Case(LayerShape(2, 24, 12), spans=[(40, 41), (100, 101), (3, 50)])
    assert torch.allclose(case.attend(PagedAttention), case.expected(), atol=2e-5)
