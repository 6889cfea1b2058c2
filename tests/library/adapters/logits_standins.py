"""The parts of SGLang, Dynamo and vLLM that meet logits processors, made of facts in their sources:
SGLang 0.5.23, ai-dynamo 1.6.1, vLLM 0.32."""

import json
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any
from weakref import proxy

import torch
from torch import Tensor


class CustomLogitProcessor(ABC):
    """SGLang's. It reads the string that a request sends with dill, which reads pickles."""

    @abstractmethod
    def __call__(self, logits: Tensor, custom_param_list: list[dict[str, Any]] | None = None) -> Tensor: ...

    @classmethod
    def from_str(cls, text: str) -> Any:
        return pickle.loads(bytes.fromhex(json.loads(text)["callable"]))()


class SGLangRequest:
    def __init__(self, rid: str, prompt: list[int], params: dict[str, Any]) -> None:
        self.rid, self.origin_input_ids, self.output_ids = rid, prompt, list[int]()
        self.custom_params = params | {"__req__": proxy(self)}


def sglang_step(reference: str, requests: Sequence[SGLangRequest], logits: Tensor, places: int = 1) -> Tensor:
    """One draw: a new instance for each batch, and the rows of all its requests."""
    processor = CustomLogitProcessor.from_str(reference)
    changed: Tensor = processor(
        logits.clone(), [one.custom_params for one in requests for _ in range(places)]
    )
    return changed


@dataclass(frozen=True)
class ForcedTokenSequenceSpec:
    """Dynamo's, and the two after it."""

    token_ids: tuple[int, ...]
    eos_token_id: int


@dataclass(frozen=True)
class PythonProcessorSpec:
    factory: Callable[[], Any]


@dataclass(frozen=True)
class LogitsProcessorSpec:
    entries: tuple[Any, ...]
    generation_only: bool = True


def dynamo_step(processor: Any, ids: list[int], logits: Tensor) -> Tensor:
    """One draw as Dynamo's adapter for TensorRT-LLM does it: a processor's error changes nothing."""
    own = logits.clone()[None, None]
    with suppress(Exception):
        processor(ids, own[0, 0, :])
    return own[0, 0]


@dataclass
class SamplingParams:
    """vLLM's, and all below."""

    extra_args: dict[str, Any] | None = None


@dataclass
class BatchUpdate:
    removed: list[int] = field(default_factory=list)
    added: list[Any] = field(default_factory=list)
    moved: list[tuple[int, int]] = field(default_factory=list)


class LogitsProcessor(ABC):
    @abstractmethod
    def apply(self, logits: Tensor) -> Tensor: ...


def process_dict_updates(rows: dict[int, Any], update: BatchUpdate | None, begin: Callable[..., Any]) -> None:
    for index, *sequence in update.added if update else ():
        rows[index] = begin(*sequence)
    for index in update.removed if update else ():
        rows.pop(index, None)
    for source, target in update.moved if update else ():
        rows[target] = rows.pop(source)


def vllm_config(vocab_size: int) -> Any:
    return SimpleNamespace(model_config=SimpleNamespace(get_vocab_size=lambda: vocab_size))


def modules() -> dict[str, ModuleType]:
    names: dict[str, list[Any]] = {
        "sglang.srt.sampling.custom_logit_processor": [CustomLogitProcessor],
        "dynamo.common.backend.engine": [ForcedTokenSequenceSpec, PythonProcessorSpec, LogitsProcessorSpec],
        "vllm": [SamplingParams],
        "vllm.config": [type("VllmConfig", (), {})],
        "vllm.v1.sample.logits_processor": [BatchUpdate, LogitsProcessor, process_dict_updates],
    }
    made: dict[str, ModuleType] = {}
    for name, members in names.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            path = ".".join(parts[:end])
            made.setdefault(path, ModuleType(path)).__path__ = []
        for member in members:
            setattr(made[name], member.__name__, member)
        if len(parts) > 1:
            setattr(made[name.rpartition(".")[0]], parts[-1], made[name])
    return made


class SlowDown:
    """A `LogitsProcessor` of TensorRT-LLM. A token that the sequence has gets a smaller logit."""

    def __init__(self, by: float) -> None:
        self._by = by

    def __call__(
        self, req_id: int, logits: Tensor, token_ids: list[list[int]], stream_ptr: Any, client_id: Any
    ) -> None:
        logits[:, :, torch.tensor(token_ids[0])] -= self._by


class OnlyToken(CustomLogitProcessor):
    """SGLang's form: a request's parameter is the only token."""

    def __call__(self, logits: Tensor, custom_param_list: list[dict[str, Any]] | None = None) -> Tensor:
        for row, params in zip(logits, custom_param_list or [], strict=True):
            kept = row[params["only"]].clone()
            row.fill_(float("-inf"))
            row[params["only"]] = kept
        return logits


class Hotter:
    """Dynamo's protocol."""

    def __init__(self, temperature: float) -> None:
        self._temperature = temperature

    def __call__(self, input_ids: Sequence[int], logits: Tensor) -> None:
        logits.div_(self._temperature)
