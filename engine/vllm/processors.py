"""Weir's logits processors inside vLLM's worker, over vLLM's interface for logits processors (v1).

The worker is its own process. It builds the server's processors again, from the same configuration, and
starts those of a request from the request's data (`WorkerRequest`). A processor cannot fail a request there:
vLLM has no way to say so. So the failure is noted in a file before the token is drawn, and the engine looks
for the note before it uses the token.
"""

import json
import os
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor
from vllm import SamplingParams
from vllm.config import VllmConfig
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, process_dict_updates

from engine.core.input_processor import ServedModel, make_context, make_registry
from engine.protocol import GenerationRequest, LogitsProcessorError, RequestError
from engine.protocol import SamplingParams as WeirSampling
from engine.protocol.options import EngineConfig
from engine.protocol.processor_specs import LogitsProcessorSpec
from engine.sampling.logits_processors import TokenIds
from engine.sampling.logits_processors.run import ProcessorRun
from engine.sampling.sampling_state import SamplingState
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


class Joined(Seq[int]):
    """A prompt's tokens and the tokens after it. vLLM keeps them apart, and appends to the second list."""

    def __init__(self, first: list[int], second: list[int]) -> None:
        self._first, self._second = first, second

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> list[int]: ...
    def __getitem__(self, at: int | slice) -> int | list[int]:
        num = len(self._first)
        if isinstance(at, int):
            at = at + len(self) if at < 0 else at
            return self._first[at] if at < num else self._second[at - num]
        begin, end, step = at.indices(len(self))
        if step != 1:
            return [*self._first, *self._second][at]
        return self._first[begin:end] + self._second[max(0, begin - num) : max(0, end - num)]

    def __len__(self) -> int:
        return len(self._first) + len(self._second)

    def __iter__(self) -> Iterator[int]:
        yield from self._first
        yield from self._second


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
        places = [at for at, row in self._rows.items() if not row.has_failed]
        index = torch.tensor(places, device=logits.device, dtype=torch.long)
        states = [self._rows[at].state for at in places]
        run = ProcessorRun(own := logits[index], states)
        logits[index] = run.shape(run.mask(own, states), states)
        for number, error in run.failures(run.bests).items():
            assert isinstance(error, LogitsProcessorError)  # vLLM's bias bans tokens, not the run
            self._fail(self._rows[places[number]], error)
        for at, row in self._rows.items():
            if row.has_failed:  # the request will be aborted; until then any token will do
                logits[at] = 0.0
        return logits

    def _begin(
        self, params: SamplingParams, prompt_ids: list[int] | None, output_ids: list[int]
    ) -> "_Row | None":
        asked = WorkerRequest.from_args(params.extra_args)
        if asked is None:
            return None
        token_ids = TokenIds(Joined(prompt_ids or [], output_ids), asked.num_prompt_tokens)
        sampling = WeirSampling(logits_processors=tuple(map(LogitsProcessorSpec.from_json, asked.specs)))
        row = _Row(asked.key, SamplingState(asked.request_id, sampling, token_ids, frozenset()))
        request = GenerationRequest(
            request_id=asked.request_id,
            model="",
            endpoint="completions",
            sampling=sampling,
            extra=asked.extra,
        )
        try:
            _, processors = self._registry.realize(request)
            row.state.processors = tuple(one.start(token_ids) for one in processors)
        except LogitsProcessorError as error:
            self._fail(row, error)
        except RequestError:  # the engine has checked the same request with the same processors
            self._fail(row, LogitsProcessorError("logits_processors"))
        return row

    def _fail(self, row: "_Row", error: LogitsProcessorError) -> None:
        row.has_failed = True
        self._notes.write(row.key, error)


class _Row:
    """One sequence of the batch."""

    def __init__(self, key: str, state: SamplingState) -> None:
        self.key, self.state = key, state
        self.has_failed = False
