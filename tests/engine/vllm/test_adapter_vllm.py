"""The adapter for `vllm serve`, with vLLM's own batch updates. Its other tests need no vLLM."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.vllm


def test_a_batch_of_vllm_follows_its_requests(
    vllm_environment: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm import SamplingParams
    from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

    from weir.adapters.vllm_logits import Processors

    (path := tmp_path / "weir.yaml").write_text(json.dumps({"logits_processors": "allowed=allowed_tokens"}))
    monkeypatch.setenv("WEIR_CONFIG", str(path))
    config: Any = SimpleNamespace(model_config=SimpleNamespace(get_vocab_size=lambda: 2048))
    processor = Processors(config, torch.device("cpu"), False)
    assert isinstance(processor, LogitsProcessor)

    def asks(token_id: int) -> SamplingParams:
        named = [{"name": "allowed", "params": {"token_ids": [token_id]}}]
        return SamplingParams(extra_args={"logits_processors": json.dumps(named)})

    Processors.validate_params(asks(5))
    with pytest.raises(ValueError, match="token ids"):
        Processors.validate_params(asks(99_999))
    added = [(0, asks(5), [1], []), (1, asks(6), [1], []), (2, SamplingParams(), None, [])]
    processor.update_state(BatchUpdate(3, removed=[], added=added, moved=[]))
    swap = [(0, 1, MoveDirectionality.SWAP)]
    processor.update_state(BatchUpdate(3, removed=[], added=[], moved=swap))
    out = processor.apply(torch.randn(3, 2048))
    assert [torch.nonzero(row.isfinite()).flatten().tolist() for row in out[:2]] == [[6], [5]]
    assert out[2].isfinite().all()
