"""Weir's logits processors as a logits processor of `vllm serve`.

    WEIR_CONFIG=weir.yaml vllm serve MODEL --logits-processors weir.adapters.vllm_logits:Processors

A request names processors in `vllm_xargs`, whose values are texts:
`{"logits_processors": "[{\\"name\\": \\"no_digits\\"}]"}`. `weir serve --engine vllm` has its own
(`engine.vllm.processors`), which fails a request where this one can only end it.

Read in `vllm/v1/sample/logits_processor/interface.py` of vLLM 0.32.
"""

from typing import Any

import torch
from torch import Tensor
from vllm import SamplingParams
from vllm.config import VllmConfig
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, process_dict_updates

from engine.protocol import LogitsProcessorError
from engine.protocol.processor_specs import NamedProcessorSpec
from engine.sampling.logits_processors import TokenIds
from engine.sampling.logits_processors.other_engines import Joined, Row
from weir.adapters.logits import FIELD, asked_processors, served_processors


class Processors(LogitsProcessor):
    """All of Weir's logits processors of a worker's batch, the mandatory ones included."""

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Raises `ValueError` for processors or parameters that there are not: vLLM's client gets a 400."""
        served_processors(True).check(_asked(sampling_params))

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        self._served = served_processors(True)
        self._like = torch.empty((vllm_config.model_config.get_vocab_size(),), device=device)
        self._rows: dict[int, Row] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self._rows, batch_update, self._begin)

    def apply(self, logits: Tensor) -> Tensor:
        if self._rows:
            index = torch.tensor([*self._rows], device=logits.device, dtype=torch.long)
            self._served.apply([*self._rows.values()], own := logits[index])
            logits[index] = own
        return logits

    def _begin(self, params: SamplingParams, prompt_ids: list[int] | None, output_ids: list[int]) -> Row:
        prompt = prompt_ids or []
        token_ids = TokenIds(Joined(lambda: prompt, lambda: output_ids), len(prompt))
        try:
            return self._served.row("vllm", _asked(params), token_ids, self._like)
        except ValueError:  # `validate_params` has refused it
            row = self._served.row("vllm", (), token_ids, self._like)
            row.error = LogitsProcessorError(FIELD)
            return row


def _asked(params: SamplingParams) -> list[NamedProcessorSpec]:
    extra: dict[str, Any] = params.extra_args or {}
    return asked_processors(extra[FIELD]) if FIELD in extra else []
