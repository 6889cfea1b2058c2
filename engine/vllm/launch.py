"""Starts vLLM's processes with the deployment's arguments, and with Weir's own parts in them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from vllm.config import StructuredOutputsConfig, VllmConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.v1.engine.async_llm import AsyncLLM

from engine.protocol import EngineError, ProbeInfo
from engine.protocol.options import EngineConfig
from engine.sampling.logits_processors.load import find_processors
from engine.sources.files import eos_token_ids_of
from engine.vllm.limits import RunnerLimits
from engine.vllm.options import check_names
from engine.vllm.processors import PATH, worker_settings
from engine.vllm.scheduler import path_of
from engine.vllm.stats import SchedulerCounts


@dataclass(frozen=True, slots=True)
class VLLMModel:
    """The facts about vLLM's model (`engine.core.input_processor.ServedModel`)."""

    max_model_len: int
    vocab_size: int
    eos_token_ids: frozenset[int]
    device: torch.device
    """Weir's own part in this process needs no accelerator."""
    probes: tuple[ProbeInfo, ...] = ()
    """vLLM shows no activations."""


@dataclass(eq=False, slots=True)
class Launch:
    """One engine of vLLM: its configuration, then its processes."""

    config: EngineConfig
    vllm_config: VllmConfig

    @classmethod
    def prepare(cls, config: EngineConfig, arguments: Mapping[str, Any]) -> "Launch":
        """Raises `ValueError` or `OSError` for arguments that vLLM refuses."""
        check_names(arguments, {one.name for one in fields(AsyncEngineArgs)})
        if has_processors(config):
            # Weir's processors are written for this one.
            os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")
        try:
            vllm_config = AsyncEngineArgs(**_with_objects(arguments)).create_engine_config()
        except (TypeError, ValueError) as error:
            raise ValueError(f"vLLM refuses its arguments: {error}") from error
        launch = cls(config, vllm_config)
        if not config.share_outputs:
            launch._keep_outputs_private()
        return launch

    @property
    def model(self) -> VLLMModel:
        model = self.vllm_config.model_config
        eos_token_ids = eos_token_ids_of(model.model, model.hf_config)
        return VLLMModel(model.max_model_len, model.get_vocab_size(), eos_token_ids, torch.device("cpu"))

    @property
    def tokenizer(self) -> str:
        """The tokenizer's folder, or its name on the hub."""
        name: str = self.vllm_config.model_config.tokenizer
        return name

    @property
    def num_places(self) -> int:
        """Outputs that vLLM runs at the same time."""
        parallel = self.vllm_config.parallel_config
        num: int = self.vllm_config.scheduler_config.max_num_seqs * parallel.data_parallel_size
        return num

    @property
    def is_speculative(self) -> bool:
        return self.vllm_config.speculative_config is not None

    @property
    def limits(self) -> RunnerLimits | None:
        """None: vLLM's first model runner takes fields of any length."""
        return RunnerLimits.of_second_runner() if self.vllm_config.use_v2_model_runner else None

    def add_processors(self, notes_folder: str) -> None:
        """Have vLLM's workers build Weir's logits processors. Raises `ValueError` if they cannot run."""
        if reason := self._no_processors_reason():
            raise ValueError(f"logits processors cannot run in this vLLM: {reason}")
        given, settings = self.vllm_config, worker_settings(self.config, self.model, notes_folder)
        given.additional_config = {**given.additional_config, **settings}
        given.model_config.logits_processors = [*(given.model_config.logits_processors or []), PATH]

    def start(self, *, logs_stats: bool) -> AsyncLLM:
        """Start the processes. It takes as long as loading the model. Raises `EngineError`."""
        try:
            return AsyncLLM.from_vllm_config(
                self.vllm_config, stat_loggers=[SchedulerCounts], disable_log_stats=not logs_stats
            )
        except RuntimeError as error:
            raise EngineError(f"vLLM cannot start: {error}") from error

    def _keep_outputs_private(self) -> None:
        """Have the prefix cache share no outputs (contract 6.4). Raises `ValueError` if that cannot be."""
        scheduler = self.vllm_config.scheduler_config
        if not self.vllm_config.cache_config.enable_prefix_caching:
            return
        if scheduler.scheduler_cls is not None:
            raise ValueError("vllm: scheduler_cls cannot be set while hooks may withhold text")
        scheduler.scheduler_cls = path_of(is_async=bool(scheduler.async_scheduling))

    def _no_processors_reason(self) -> str | None:
        parallel = self.vllm_config.parallel_config
        if self.is_speculative:
            return "it has speculative decoding, which bypasses them"
        if self.vllm_config.use_v2_model_runner:
            return "it has its second model runner; unset VLLM_USE_V2_MODEL_RUNNER"
        if parallel.distributed_executor_backend == "ray" or parallel.nnodes > 1:
            return "its workers are on other machines"
        return None


def _with_objects(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, with an object where vLLM sets the reasoning parser: it makes none of a mapping."""
    structured = arguments.get("structured_outputs_config")
    made = StructuredOutputsConfig(**structured) if isinstance(structured, Mapping) else structured
    return {**arguments, "structured_outputs_config": made}


def counts_of(llm: AsyncLLM) -> SchedulerCounts:
    (counts,) = (one for one in llm.logger_manager.stat_loggers if isinstance(one, SchedulerCounts))
    return counts


def has_processors(config: EngineConfig) -> bool:
    """Whether the server has any logits processor. Raises `ProcessorLoadError`."""
    return config.enable_test_logits_processor or bool(find_processors(config.logits_processors))
