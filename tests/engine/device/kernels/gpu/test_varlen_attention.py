"""The calls of `varlen_attn`, with a stand-in that does as torch's documentation says.

The real one needs a Hopper GPU with FlashAttention 3.
"""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import varlen

pytest.importorskip("triton")

from engine.device.attention import PagedAttention
from engine.device.kernels.choice import choose_attention
from engine.device.kernels.gpu.triton_kernels import TritonAttention
from engine.device.kernels.gpu.varlen_attention import VarlenAttention
from engine.execution.model_runner import ModelRunner
from engine.protocol.options import EngineConfig
from tests.engine.device.attention_cases import DEVICE, Case
from tests.engine.device.kernels.test_choice import NEEDS

SIGNATURE = inspect.signature(varlen.varlen_attn)


def documented(*args: Any, **kwargs: Any) -> Tensor:
    call = SIGNATURE.bind(*args, **kwargs)
    call.apply_defaults()
    given = call.arguments
    query, key, value, tables = (given[k] for k in ("query", "key", "value", "block_table"))
    bounds, lengths, (left, right) = given["cu_seq_q"], given["seqused_k"], given["window_size"]
    assert all(t.dtype == torch.int32 for t in (bounds, lengths, tables))
    assert given["enable_gqa"] or query.shape[1] == key.shape[2]
    assert right == 0
    out = torch.empty_like(query)
    for i, (start, end) in enumerate(zip(bounds.tolist(), bounds.tolist()[1:], strict=False)):
        length, size = int(lengths[i]), key.shape[1]
        assert end - start <= given["max_q"]
        assert length <= min(given["max_k"], tables.shape[1] * size)
        pages = tables[i, : -(-length // size)].long()
        k, v = (
            t[pages].flatten(0, 1)[:length].repeat_interleave(query.shape[1] // key.shape[2], dim=1).float()
            for t in (key, value)
        )
        at, places = torch.arange(length), torch.arange(length - (end - start), length)[:, None]
        seen = (at <= places) & ((at >= places - left) if left >= 0 else torch.tensor(True))
        scale = query.shape[2] ** -0.5 if given["scale"] is None else given["scale"]
        scores = torch.einsum("qhd,khd->hqk", query[start:end].float(), k) * scale
        weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        out[start:end] = torch.einsum("hqk,khd->qhd", weights, v).to(out.dtype)
    return out


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varlen, "varlen_attn", documented)


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("scoring", [{}, {"sliding_window": 10}, {"scaling": 0.3}])
@pytest.mark.parametrize("heads", [2, 6])
def test_every_kind_of_token_sees_what_it_should(heads: int, scoring: dict[str, Any]) -> None:
    case = Case(heads=heads, **scoring)
    attention = VarlenAttention(case.kv_cache, case.batch, pytest.fail)  # type: ignore[arg-type]
    found = attention(0, case.query, case.key, case.value, case.scoring)
    assert torch.allclose(found, case.expected(), atol=1e-5)


@pytest.mark.parametrize("scoring", [{"softcap": 2.0}, {"s_aux": torch.ones(4)}])
def test_what_it_cannot_weigh_goes_to_another(
    scoring: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(varlen, "varlen_attn", pytest.fail)
    case = Case(**scoring)
    other = PagedAttention(case.kv_cache, case.batch)
    found = VarlenAttention(case.kv_cache, case.batch, other)(
        0, case.query, case.key, case.value, case.scoring
    )
    assert torch.allclose(found, case.expected(), atol=1e-5)


@pytest.mark.usefixtures("stand_in")
def test_it_is_preferred_where_its_trial_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.device.kernels.choice._is_gpu", lambda device: True)
    backend = choose_attention("auto", NEEDS)
    case = Case()
    assert backend is not None
    assert isinstance(backend(case.kv_cache, case.batch), VarlenAttention)


def test_where_its_trial_fails_triton_attends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.device.kernels.choice._is_gpu", lambda device: True)
    assert choose_attention("auto", NEEDS) is TritonAttention


@pytest.mark.skipif(DEVICE.type == "cuda", reason="it may work there")
def test_asked_for_where_it_does_not_work_the_engine_does_not_start(tiny_model: Callable[[str], Any]) -> None:
    config = EngineConfig(model=str(tiny_model("llama").path), attention_backend="varlen", model_impl="weir")
    with pytest.raises(ValueError, match="attention_backend varlen does not work here"):
        ModelRunner.load(config)
