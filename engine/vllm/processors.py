"""Weir's logits processors inside vLLM's worker, over vLLM's interface for logits processors (v1).

The worker is its own process. It builds the server's processors again, from the same configuration, and
starts those of a request from the request's data (`WorkerRequest`). A processor cannot fail a request there:
vLLM has no way to say so. So the failure is noted in a file before the token is drawn, and the engine looks
for the note before it uses the token.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from vllm import SamplingParams
from vllm.config import VllmConfig
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, process_dict_updates

from engine.core.input_processor import ServedModel, make_context, make_registry
from engine.protocol import LogitsProcessorError
from engine.protocol.options import EngineConfig
from engine.protocol.processor_specs import LogitsProcessorSpec
from engine.sampling.logits_processors import TokenIds
from engine.sampling.logits_processors.other_engines import Joined, Row, process
from engine.text.tokenizer import LocalTokenizer
from engine.vllm.sampling import EXTRA, WorkerRequest

PATH = f"{__name__}:WeirLogitsProcessors"
"""The class's name, in vLLM's form."""


class FailureNotes:
    """Files that record which processor failed which sequence. Both processes see the folder."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def write(self, key: str, error: LogitsProcessorError) -> None:
        (self._folder / key).write_text(json.dumps([error.processor, error.left_no_token]))

    def taken(self, key: str) -> LogitsProcessorError | None:
        """The failure of the sequence, if it has failed. The note is removed."""
        if not os.path.exists(path := os.path.join(self._folder, key)):
            return None
        processor, left_no_token = json.loads(Path(path).read_text())
        os.unlink(path)
        return LogitsProcessorError(processor, left_no_token=left_no_token)


def worker_settings(config: EngineConfig, model: ServedModel, notes_folder: str) -> dict[str, Any]:
    """All that a worker needs to build the processors, as data: vLLM's `additional_config`."""
    names = {"model", "tokenizer", "trust_remote_code", "logits_processors", "enable_test_logits_processor"}
    return {
        EXTRA: {
            "config": config.model_dump(mode="json", include=names),
            "vocab_size": model.vocab_size,
            "eos_token_ids": sorted(model.eos_token_ids),
            "notes": notes_folder,
        }
    }


class WeirLogitsProcessors(LogitsProcessor):
    """All of Weir's logits processors of a worker's batch."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        settings: Mapping[str, Any] = vllm_config.additional_config[EXTRA]
        config = EngineConfig(**settings["config"])
        tokenizer = LocalTokenizer.load(config.tokenizer_name, trust_remote_code=config.trust_remote_code)
        eos_token_ids = frozenset(settings["eos_token_ids"])
        context = make_context(tokenizer, settings["vocab_size"], eos_token_ids, device)
        self._registry = make_registry(context, config)
        self._notes = FailureNotes(settings["notes"])
        self._rows: dict[int, _Row] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self._rows, batch_update, self._begin)

    def apply(self, logits: Tensor) -> Tensor:
        if not self._rows:
            return logits
        places = [at for at, row in self._rows.items() if row.error is None]
        rows = [self._rows[at] for at in places]
        index = torch.tensor(places, device=logits.device, dtype=torch.long)
        logits[index] = process(rows, logits[index])
        for row in rows:
            self._note_failure(row)
        for at, row in self._rows.items():
            if row.error is not None:  # the request will be aborted; until then any token will do
                logits[at] = 0.0
        return logits

    def _begin(
        self, params: SamplingParams, prompt_ids: list[int] | None, output_ids: list[int]
    ) -> "_Row | None":
        asked = WorkerRequest.from_args(params.extra_args)
        if asked is None:
            return None
        prompt = prompt_ids or []
        token_ids = TokenIds(Joined(lambda: prompt, lambda: output_ids), asked.num_prompt_tokens)
        specs = [LogitsProcessorSpec.from_json(one) for one in asked.specs]
        # The engine has checked the same request with the same processors.
        row = _Row(self._registry, asked.request_id, specs, token_ids, asked.extra)
        row.key = asked.key
        self._note_failure(row)
        return row

    def _note_failure(self, row: "_Row") -> None:
        if row.error is not None:
            self._notes.write(row.key, row.error)


class _Row(Row):
    """One sequence of the batch."""

    key: str
