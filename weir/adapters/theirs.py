"""Logits processors that were written for other servers, in Weir's own engine, unchanged.

One with the call of Dynamo's protocol, `(input_ids, logits)`, needs none of this: Weir's engine takes it by
its import path. Those of SGLang and TensorRT-LLM are named by `args`:

    logits_processors:
      - {name: budget, path: "weir.adapters.theirs:SGLang", args: {path: "acme.sglang:ThinkingBudget"}}
"""

from typing import Any

from torch import Tensor

from engine.protocol.import_path import find_class
from engine.sampling.logits_processors import AnyParams, Context, TokenIds


class SGLang:
    """A `CustomLogitProcessor`. A request's `params` are its `custom_params`."""

    Params = AnyParams

    @classmethod
    def prepare(cls, context: Context, path: str) -> Any:
        return find_class(path)()

    def __init__(self, shared: Any) -> None:
        self._theirs = shared

    def __call__(self, logits: Tensor, params: list[dict[str, Any]]) -> Tensor:
        changed: Tensor = self._theirs(logits, params)
        return changed


class TensorRTLLM:
    """A `LogitsProcessor` of TensorRT-LLM, called with `(req_id, logits, token_ids, stream_ptr, client_id)`.
    Each sequence has an instance of its own. `args`: the keyword arguments of its `__init__`."""

    def __init__(self, path: str, args: dict[str, Any] | None = None) -> None:
        self._theirs = find_class(path)(**(args or {}))

    def __call__(self, input_ids: TokenIds, logits: Tensor) -> None:
        self._theirs(0, logits.view(1, 1, -1), [[*input_ids]], None, None)
